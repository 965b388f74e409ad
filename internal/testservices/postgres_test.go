package testservices

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

func query(ctx context.Context, d *Database, statement string) error {
	conn, err := pgx.Connect(ctx, d.URL())
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

func TestPostgres(t *testing.T) {
	t.Parallel()
	began := time.Now()
	first, second := Postgres(t), Postgres(t)
	t.Logf("two databases after %v", time.Since(began))
	for _, d := range []*Database{first, second} {
		if err := query(t.Context(), d, "CREATE TABLE things (id bigint)"); err != nil {
			t.Fatal(err) // would fail for the second if both were one
		}
	}
}

func TestPostgresFaults(t *testing.T) {
	t.Parallel()
	d := NewPostgres(t)
	if err := query(t.Context(), d, "CREATE TABLE things (id bigint)"); err != nil {
		t.Fatal(err)
	}
	d.Kill()
	if err := query(t.Context(), d, "SELECT 1"); err == nil {
		t.Error("answers after Kill")
	}
	d.Start()
	if err := query(t.Context(), d, "INSERT INTO things VALUES (1)"); err != nil {
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), d.URL())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	d.Stop()
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := conn.Exec(ctx, "SELECT 1"); err == nil {
		t.Error("an open connection answers after Stop")
	}
	d.Cont()
	if err := query(t.Context(), d, "INSERT INTO things VALUES (2)"); err != nil {
		t.Fatal(err)
	}
	d.Stop() // the end of a stopped server must not hang
}
