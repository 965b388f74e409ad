package testservices

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
)

const postgresStartLimit = 60 * time.Second

// Database is one database of a private PostgreSQL server. Its methods fail the
// test that made it when something goes wrong, so they are for the test's own
// goroutine.
type Database struct {
	tb      testing.TB
	cluster *cluster
	name    string
	own     bool // the cluster is this test's
}

// cluster is one PostgreSQL server.
type cluster struct {
	dir  string
	bin  string
	port int
	cred *syscall.Credential // who it runs as; nil: who runs the tests

	mu     sync.Mutex
	server *process
	serial atomic.Int64 // numbers the databases

	prepare    sync.Once // see PostgresLike
	unprepared error
}

var sharedCluster struct {
	once    sync.Once
	cluster *cluster
	err     error
}

// Postgres returns a new, empty database on the server that all tests of this
// binary share; the first call starts it. The database is dropped when the test
// ends, also if somebody is still connected.
func Postgres(tb testing.TB) *Database {
	tb.Helper()
	return sharedDatabase(tb, sharedServer(tb), "template1")
}

// PostgresLike returns a new database as [Postgres] does, with everything in it
// that prepare puts into an empty one. It is called for the first database only,
// with the address of one that the others are copied from, and must leave no
// connection; each test binary has one prepare.
func PostgresLike(tb testing.TB, prepare func(url string) error) *Database {
	tb.Helper()
	c := sharedServer(tb)
	const name = "prepared"
	c.prepare.Do(func() {
		if c.unprepared = c.exec("CREATE DATABASE " + name); c.unprepared == nil {
			c.unprepared = prepare(c.url(name))
		}
	})
	if c.unprepared != nil {
		tb.Fatalf("testservices: PostgreSQL: preparing a database: %v", c.unprepared)
	}
	return sharedDatabase(tb, c, name)
}

// sharedServer returns the server of all tests of this binary.
func sharedServer(tb testing.TB) *cluster {
	tb.Helper()
	needMain(tb)
	sharedCluster.once.Do(func() {
		sharedCluster.cluster, sharedCluster.err = newCluster()
		if sharedCluster.err == nil {
			onMainEnd(sharedCluster.cluster.end)
		}
	})
	if sharedCluster.err != nil {
		tb.Fatalf("testservices: PostgreSQL: %v", sharedCluster.err)
	}
	return sharedCluster.cluster
}

func sharedDatabase(tb testing.TB, c *cluster, template string) *Database {
	tb.Helper()
	d := newDatabase(tb, c, false, template)
	tb.Cleanup(func() {
		if err := d.cluster.exec("DROP DATABASE IF EXISTS " + d.name + " WITH (FORCE)"); err != nil {
			tb.Errorf("testservices: PostgreSQL: %v", err)
		}
	})
	return d
}

// NewPostgres starts a server for this test alone, which may kill, stop and
// start it, with one empty database. It ends with the test.
func NewPostgres(tb testing.TB) *Database {
	tb.Helper()
	c, err := newCluster()
	if err != nil {
		tb.Fatalf("testservices: PostgreSQL: %v", err)
	}
	tb.Cleanup(func() {
		c.end()
		if tb.Failed() {
			tb.Logf("testservices: PostgreSQL said:\n%s", logTail(c.logFile()))
		}
		if err := os.RemoveAll(c.dir); err != nil {
			tb.Errorf("testservices: PostgreSQL: %v", err)
		}
	})
	return newDatabase(tb, c, true, "template1")
}

func newDatabase(tb testing.TB, c *cluster, own bool, template string) *Database {
	tb.Helper()
	d := &Database{tb: tb, cluster: c, own: own, name: fmt.Sprintf("test%d", c.serial.Add(1))}
	if err := c.exec("CREATE DATABASE " + d.name + " TEMPLATE " + template); err != nil {
		tb.Fatalf("testservices: PostgreSQL: %v", err)
	}
	return d
}

// URL returns the address of the database for pgx.
func (d *Database) URL() string { return d.cluster.url(d.name) }

// Port returns the server's port on 127.0.0.1.
func (d *Database) Port() int { return d.cluster.port }

// Kill ends the server and all its helpers with SIGKILL. Its data stays.
func (d *Database) Kill() {
	d.tb.Helper()
	c := d.ownCluster()
	defer c.mu.Unlock()
	if err := c.server.killTree(); err != nil {
		d.tb.Fatalf("testservices: PostgreSQL: %v", err)
	}
}

// Stop freezes the server and all its helpers with SIGSTOP: connections stay
// open, queries hang.
func (d *Database) Stop() { d.tb.Helper(); d.signal(syscall.SIGSTOP) }

// Cont lets a stopped server go on.
func (d *Database) Cont() { d.tb.Helper(); d.signal(syscall.SIGCONT) }

func (d *Database) signal(s syscall.Signal) {
	d.tb.Helper()
	c := d.ownCluster()
	defer c.mu.Unlock()
	if err := c.server.signalTree(s); err != nil {
		d.tb.Fatalf("testservices: PostgreSQL: %v: %v", s, err)
	}
	if s == syscall.SIGSTOP {
		if err := c.server.awaitStopped(); err != nil {
			d.tb.Fatalf("testservices: PostgreSQL: %v: %v", s, err)
		}
	}
}

// Start starts a killed server again, on the same data and port, and returns
// when it answers.
func (d *Database) Start() {
	d.tb.Helper()
	c := d.ownCluster()
	defer c.mu.Unlock()
	if !c.server.exited() {
		d.tb.Fatal("testservices: PostgreSQL: Start: the server is running")
	}
	if err := c.boot(); err != nil {
		d.tb.Fatalf("testservices: PostgreSQL: start again: %v", err)
	}
}

// ownCluster returns the cluster, locked.
func (d *Database) ownCluster() *cluster {
	if !d.own {
		panic("testservices: the shared PostgreSQL is not to be killed or stopped: use NewPostgres")
	}
	d.cluster.mu.Lock()
	return d.cluster
}

func newCluster() (*cluster, error) {
	bin, err := findPostgres()
	if err != nil {
		return nil, err
	}
	cred, err := postgresUser()
	if err != nil {
		return nil, err
	}
	for try := 1; ; try++ {
		c := &cluster{bin: bin, cred: cred}
		err := c.create()
		if err == nil {
			return c, nil
		}
		c.end()
		os.RemoveAll(c.dir)
		if !errors.Is(err, errExited) || try == attempts {
			return nil, err
		}
	}
}

// findPostgres returns the directory of the newest installed server's programs.
func findPostgres() (string, error) {
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	newest, bin := -1, ""
	for _, path := range found {
		dir := filepath.Dir(path)
		if v, err := strconv.Atoi(filepath.Base(filepath.Dir(dir))); err == nil && v > newest {
			newest, bin = v, dir
		}
	}
	if bin != "" {
		return bin, nil
	}
	path, err := exec.LookPath("initdb")
	if err != nil {
		return "", missing("postgresql")
	}
	return filepath.Dir(path), nil
}

// postgresUser says whose rights the server takes: PostgreSQL refuses root.
func postgresUser() (*syscall.Credential, error) {
	if os.Geteuid() != 0 {
		return nil, nil
	}
	u, err := user.Lookup("postgres")
	if err != nil {
		return nil, missing("postgresql (its user postgres)")
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		return nil, err
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		return nil, err
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
}

func (c *cluster) create() error {
	dir, err := newDir("postgres")
	if err != nil {
		return err
	}
	c.dir = dir
	if c.cred != nil {
		if err := os.Chown(dir, int(c.cred.Uid), int(c.cred.Gid)); err != nil {
			return err
		}
	}
	if err := freePorts(&c.port); err != nil {
		return err
	}
	initdb, err := start(command{
		path: filepath.Join(c.bin, "initdb"),
		args: []string{"-D", c.data(), "-A", "trust", "-U", "postgres", "-E", "UTF8", "--locale=C", "--no-sync"},
		env:  c.env(),
		dir:  dir,
		log:  c.logFile(),
		cred: c.cred,
	})
	if err != nil {
		return err
	}
	<-initdb.done
	if initdb.err != nil {
		return fmt.Errorf("initdb: %w\n%s", initdb.err, logTail(c.logFile()))
	}
	return c.boot()
}

func (c *cluster) data() string    { return filepath.Join(c.dir, "data") }
func (c *cluster) logFile() string { return filepath.Join(c.dir, "log") }

func (c *cluster) env() []string {
	return []string{"PATH=" + os.Getenv("PATH"), "LANG=C.UTF-8", "HOME=" + c.dir}
}

// boot starts the server and waits until it answers.
func (c *cluster) boot() error {
	var err error
	c.server, err = start(command{
		path: filepath.Join(c.bin, "postgres"),
		args: []string{
			"-D", c.data(), "-p", strconv.Itoa(c.port),
			"-c", "listen_addresses=127.0.0.1",
			"-c", "unix_socket_directories=", // a temporary path may be too long for a socket
			"-c", "fsync=off", // servers are killed here, machines are not
			"-c", "dynamic_shared_memory_type=mmap", // leaves nothing outside the directory
			"-c", "max_connections=100",
			"-c", "shared_buffers=16MB",
			"-c", "autovacuum_naptime=10min",
		},
		env:  c.env(),
		dir:  c.dir,
		log:  c.logFile(),
		cred: c.cred,
	})
	if err != nil {
		return err
	}
	err = c.server.await(postgresStartLimit, func() error { return c.exec("SELECT 1") })
	if err != nil {
		return fmt.Errorf("%w\n%s", err, logTail(c.logFile()))
	}
	return nil
}

func (c *cluster) url(database string) string {
	return fmt.Sprintf("postgres://postgres@%s/%s?sslmode=disable", loopback(c.port), database)
}

// exec runs one statement on a connection of its own.
func (c *cluster) exec(statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, statement)
	return err
}

// end stops the server in the way that frees its shared memory.
func (c *cluster) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.server == nil {
		return
	}
	_ = c.server.signalTree(syscall.SIGCONT) // it may be stopped
	c.server.terminate(syscall.SIGQUIT, 10*time.Second)
	releaseSharedMemory(c.data())
}
