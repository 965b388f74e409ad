package main

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/aether-gateway/gateway/internal/config"
	"github.com/aether-gateway/gateway/internal/store/migrate"
	"github.com/aether-gateway/gateway/internal/store/postgres"
)

type migrateCmd struct {
	Up     migrateUpCmd     `cmd:"" help:"Apply every migration that the database does not have."`
	Down   migrateDownCmd   `cmd:"" help:"Take the newest migration back, with the data that only it can hold."`
	Status migrateStatusCmd `cmd:"" help:"List the migrations and which of them are applied."`
}

// databaseFlags say which database is meant.
type databaseFlags struct {
	Config string `placeholder:"FILE" help:"A YAML file; the environment (AETHER_POSTGRES_URL) overrides it."`
}

// url is the database's URL. Nothing else of the configuration has to be right
// for a migration.
func (f *databaseFlags) url(p *program) (string, error) {
	cfg, err := config.Load(config.Options{Mode: config.Serve, File: f.Config, Environ: p.environ})
	var problems, about config.Problems
	if err != nil && !errors.As(err, &problems) {
		return "", err
	}
	for _, problem := range problems {
		if strings.HasPrefix(problem.Key, "postgres.") || problem.Key == "" {
			about = append(about, problem)
		}
	}
	if len(about) > 0 {
		return "", about
	}
	return cfg.Postgres.URL, nil
}

func (f *databaseFlags) with(p *program, fn func(context.Context, *sql.DB) error) error {
	url, err := f.url(p)
	if err != nil {
		return err
	}
	ctx, cancel := p.untilSignal()
	defer cancel()
	return postgres.WithDB(ctx, url, fn)
}

type migrateUpCmd struct{ databaseFlags }

func (c *migrateUpCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, db *sql.DB) error {
		before, err := applied(ctx, db)
		if err != nil {
			return err
		}
		if err := migrate.Up(ctx, migrate.Postgres, db); err != nil {
			return err
		}
		after, err := applied(ctx, db)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "%d migrations applied, schema version %d\n", after.count-before.count, after.version)
		return err
	})
}

type migrateDownCmd struct{ databaseFlags }

func (c *migrateDownCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, db *sql.DB) error {
		if err := migrate.Down(ctx, migrate.Postgres, db); err != nil {
			return err
		}
		after, err := applied(ctx, db)
		if err != nil {
			return err
		}
		_, err = fmt.Fprintf(p.stdout, "schema version %d\n", after.version)
		return err
	})
}

type schema struct {
	count   int
	version int64
}

func applied(ctx context.Context, db *sql.DB) (schema, error) {
	list, err := migrate.Status(ctx, migrate.Postgres, db)
	var s schema
	for _, m := range list {
		if !m.AppliedAt.IsZero() {
			s.count, s.version = s.count+1, max(s.version, m.Version)
		}
	}
	return s, err
}

type migrateStatusCmd struct {
	databaseFlags
	Output string `default:"table" enum:"table,json" help:"table or json."`
}

func (c *migrateStatusCmd) Run(p *program) error {
	return c.with(p, func(ctx context.Context, db *sql.DB) error {
		list, err := migrate.Status(ctx, migrate.Postgres, db)
		if err != nil {
			return err
		}
		if c.Output == "json" {
			type row struct {
				Version   int64   `json:"version"`
				Name      string  `json:"name"`
				AppliedAt *string `json:"applied_at"`
			}
			rows := make([]row, len(list))
			for i, m := range list {
				rows[i] = row{Version: m.Version, Name: m.Name}
				if !m.AppliedAt.IsZero() {
					at := m.AppliedAt.UTC().Format(time.RFC3339)
					rows[i].AppliedAt = &at
				}
			}
			return json.NewEncoder(p.stdout).Encode(rows)
		}
		for _, m := range list {
			at := "not applied"
			if !m.AppliedAt.IsZero() {
				at = m.AppliedAt.UTC().Format(time.RFC3339)
			}
			if _, err := fmt.Fprintf(p.stdout, "%4d  %-20s  %s\n", m.Version, at, m.Name); err != nil {
				return err
			}
		}
		return nil
	})
}
