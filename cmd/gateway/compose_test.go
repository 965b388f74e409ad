package main

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"go.yaml.in/yaml/v3"

	"github.com/aether-gateway/gateway/internal/config"
)

// compose is docker-compose.yml, as far as it is used. A field that is not here
// fails the test: it is either a typing error or has to be looked at.
type compose struct {
	Name     string
	Services map[string]*service
	Volumes  map[string]any
	Secrets  map[string]struct{ File string }
	Others   map[string]any `yaml:",inline"`
}

type service struct {
	Image       string
	Hostname    string
	Command     []string
	Environment map[string]string
	Restart     string
	User        string
	ReadOnly    bool     `yaml:"read_only"`
	CapDrop     []string `yaml:"cap_drop"`
	SecurityOpt []string `yaml:"security_opt"`
	Ports       []string
	Expose      []string
	Volumes     []string
	Ulimits     map[string]int
	Secrets     []secretUse
	DependsOn   dependsOn     `yaml:"depends_on"`
	StopGrace   time.Duration `yaml:"stop_grace_period"`
	Build       struct {
		Context string
		Args    map[string]string
	}
	Healthcheck struct {
		Test              []string
		Interval, Timeout time.Duration
		StartPeriod       time.Duration `yaml:"start_period"`
		Retries           int
	}
}

// secretUse is the name of a secret, and where it is put.
type secretUse struct{ Source, Target string }

func (s *secretUse) UnmarshalYAML(n *yaml.Node) error {
	if n.Kind == yaml.ScalarNode {
		s.Source, s.Target = n.Value, "/run/secrets/"+n.Value
		return nil
	}
	type plain secretUse
	return n.Decode((*plain)(s))
}

// dependsOn says what is waited for, and until when.
type dependsOn map[string]string

func (d *dependsOn) UnmarshalYAML(n *yaml.Node) error {
	*d = dependsOn{}
	if n.Kind == yaml.SequenceNode {
		var names []string
		err := n.Decode(&names)
		for _, name := range names {
			(*d)[name] = "service_started"
		}
		return err
	}
	var conditions map[string]struct{ Condition string }
	err := n.Decode(&conditions)
	for name, c := range conditions {
		(*d)[name] = c.Condition
	}
	return err
}

const root = "../../"

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(root + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

var variable = regexp.MustCompile(`\$\{([A-Z_]+):-([^}]*)\}`)

// readCompose reads the file with the defaults of its variables.
func readCompose(t *testing.T) *compose {
	t.Helper()
	text := readFile(t, "docker-compose.yml")
	if bare := regexp.MustCompile(`\$\{[A-Za-z_]+\}`).FindString(text); bare != "" {
		t.Errorf("%s has no default", bare)
	}
	dec := yaml.NewDecoder(strings.NewReader(variable.ReplaceAllString(text, "$2")))
	dec.KnownFields(true)
	c := &compose{}
	if err := dec.Decode(c); err != nil {
		t.Fatal(err)
	}
	for name := range c.Others {
		if !strings.HasPrefix(name, "x-") {
			t.Errorf("%s is nothing that compose knows", name)
		}
	}
	return c
}

// gateways are the services that run the gateway's image.
func (c *compose) gateways() map[string]*service {
	found := map[string]*service{}
	for name, s := range c.Services {
		if strings.HasPrefix(s.Image, "aether-gateway:") {
			found[name] = s
		}
	}
	return found
}

// serving are those of them that serve.
func (c *compose) serving() map[string]*service {
	found := c.gateways()
	for name, s := range found {
		if s.Command[0] != "serve" {
			delete(found, name)
		}
	}
	return found
}

// parses reports what is wrong with a command line of the gateway.
func parses(args []string) error {
	parser, err := kong.New(&commands{}, kong.Name("gateway"), kong.Exit(func(int) {}))
	if err != nil {
		return err
	}
	_, err = parser.Parse(args)
	return err
}

func port(t *testing.T, addr string) string {
	t.Helper()
	_, port, err := net.SplitHostPort(addr)
	if err != nil {
		t.Fatal(err)
	}
	return port
}

// Every command, flag and variable in the compose file is one that the gateway
// has, and it takes the whole configuration.
func TestComposeIsUnderstood(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	dir := t.TempDir()
	if out, err := exec.Command(root+"scripts/secrets.sh", dir).CombinedOutput(); err != nil || len(out) > 0 {
		t.Fatalf("secrets.sh: %v\n%s", err, out)
	}
	variables := map[string]bool{}
	for _, k := range config.Keys() {
		variables[k.Env()] = true
	}
	if len(c.serving()) != 2 || len(c.gateways()) != 3 {
		t.Errorf("there are %d gateways of %d services with its image", len(c.serving()), len(c.gateways()))
	}
	ids := map[string]bool{}
	for name, s := range c.gateways() {
		if err := parses(s.Command); err != nil {
			t.Errorf("%s: gateway %q: %v", name, s.Command, err)
		}
		var environ []string
		for variable, value := range s.Environment {
			if !variables[variable] {
				t.Errorf("%s: the gateway has no variable %s", name, variable)
			}
			environ = append(environ, variable+"="+strings.ReplaceAll(value, "/run/secrets/", dir+"/"))
		}
		if s.Command[0] != "serve" {
			continue
		}
		ids[s.Environment["AETHER_INSTANCE_ID"]] = true
		if out := succeed(t, environ, "config", "check"); !strings.Contains(out, "ok: ") || strings.Contains(out, "note: ") {
			t.Errorf("%s: %s", name, out)
		}
		if check := s.Healthcheck.Test; len(check) < 3 || check[0] != "CMD" || check[1] != "/gateway" || parses(check[2:]) != nil {
			t.Errorf("%s: the health check is %q", name, check)
		}
		cfg, err := config.Load(config.Options{Mode: config.Serve, Environ: environ})
		if err != nil {
			t.Fatal(err)
		}
		if s.StopGrace < cfg.Shutdown.Timeout+5*time.Second {
			t.Errorf("%s: is killed after %s, and a shutdown may take %s", name, s.StopGrace, cfg.Shutdown.Timeout)
		}
		for key, addr := range map[string]string{"grpc_addr": cfg.GRPCAddr, "http_addr": cfg.HTTPAddr, "ops_addr": cfg.OpsAddr} {
			if !slices.Contains(s.Expose, port(t, addr)) {
				t.Errorf("%s: the port of %s, %s, is not exposed", name, key, addr)
			}
		}
		for _, text := range append([]string{cfg.Postgres.URL, cfg.Redis.URL}, cfg.RabbitMQ.StreamURLs...) {
			u, err := url.Parse(text)
			if err != nil {
				t.Fatal(err)
			}
			to := c.Services[u.Hostname()]
			if to == nil || !slices.Contains(to.Expose, u.Port()) {
				t.Errorf("%s: there is no service %s with the port %s", name, u.Hostname(), u.Port())
			}
			if _, has := u.User.Password(); !has {
				t.Errorf("%s: nobody needs a password at %s", name, u.Hostname())
			}
		}
	}
	if len(ids) != 2 {
		t.Errorf("instance ids: %v", ids)
	}
}

// What comes after what, and which container may do what.
func TestComposeIsSafe(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	made := t.TempDir()
	if out, err := exec.Command(root+"scripts/secrets.sh", made).CombinedOutput(); err != nil {
		t.Fatalf("secrets.sh: %v\n%s", err, out)
	}
	for name, s := range c.Services {
		for to := range s.DependsOn {
			if c.Services[to] == nil {
				t.Errorf("%s waits for %s, which does not exist", name, to)
			} else if s.DependsOn[to] == "service_healthy" && len(c.Services[to].Healthcheck.Test) == 0 {
				t.Errorf("%s waits for the health of %s, which nobody checks", name, to)
			}
		}
		if _, tag, _ := strings.Cut(s.Image, ":"); tag == "" || tag == "latest" {
			t.Errorf("%s: the image %s has no version", name, s.Image)
		}
		if want := map[bool]string{true: "on-failure", false: "unless-stopped"}[name == "migrate"]; s.Restart != want {
			t.Errorf("%s: restart is %q, not %s", name, s.Restart, want)
		}
		for _, p := range s.Ports {
			if name != "balancer" || !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("%s: publishes %s", name, p)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, err := os.Stat(root + from); strings.HasPrefix(from, "./") && (err != nil || !strings.HasSuffix(v, ":ro")) {
				t.Errorf("%s: mounts %s: %v", name, v, err)
			} else if _, declared := c.Volumes[from]; !strings.HasPrefix(from, "./") && !declared {
				t.Errorf("%s: there is no volume %s", name, from)
			}
		}
		has := map[string]bool{}
		for _, secret := range s.Secrets {
			has[secret.Target] = true
			file := c.Secrets[secret.Source].File
			base, ok := strings.CutPrefix(file, "./deploy/secrets/")
			if _, err := os.Stat(filepath.Join(made, base)); !ok || err != nil {
				t.Errorf("%s: secrets.sh does not make %q for the secret %s", name, file, secret.Source)
			}
		}
		said := strings.Join(append(append(s.Command, s.Healthcheck.Test...), values(s.Environment)...), " ")
		for _, path := range regexp.MustCompile(`/run/secrets/[A-Za-z0-9_.]+`).FindAllString(said, -1) {
			if !has[path] {
				t.Errorf("%s: it does not have %s", name, path)
			}
		}
		for variable, value := range s.Environment {
			if u, err := url.Parse(value); err == nil && u.User != nil {
				if _, shown := u.User.Password(); shown {
					t.Errorf("%s: %s holds a password", name, variable)
				}
			}
			if secret := regexp.MustCompile(`PASS|SECRET|KEY|TOKEN`).MatchString(variable); secret && !strings.HasSuffix(variable, "_FILE") {
				t.Errorf("%s: %s is not a file", name, variable)
			}
		}
	}
	for name, s := range c.gateways() {
		uid, _, _ := strings.Cut(s.User, ":")
		if uid == "" || uid == "0" || uid == "root" || !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.SecurityOpt, "no-new-privileges:true") {
			t.Errorf("%s: may do more than it needs: user %q, read only %v, without %v, %v", name, s.User, s.ReadOnly, s.CapDrop, s.SecurityOpt)
		}
		if s.Build.Context != "." {
			t.Errorf("%s: its image is not built from here", name)
		}
	}
	for name, s := range c.serving() {
		if s.DependsOn["migrate"] != "service_completed_successfully" {
			t.Errorf("%s does not wait for the migration: %v", name, s.DependsOn)
		}
	}
	if m := c.Services["migrate"]; !slices.Equal(m.Command, []string{"migrate", "up"}) || m.DependsOn["postgres"] != "service_healthy" {
		t.Errorf("the migration: %q, after %v", m.Command, m.DependsOn)
	}
}

func values(m map[string]string) (list []string) {
	for _, v := range m {
		list = append(list, v)
	}
	return list
}

// The ports and names of the services' own files are those of the compose file.
func TestComposeServicesAgree(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	settings := map[string]string{}
	for line := range strings.Lines(readFile(t, "deploy/rabbitmq/rabbitmq.conf")) {
		if key, value, ok := strings.Cut(line, "="); ok && !strings.HasPrefix(line, "#") {
			settings[strings.TrimSpace(key)] = strings.TrimSpace(value)
		}
	}
	mq := c.Services["rabbitmq"]
	if settings["stream.advertised_host"] != "rabbitmq" || mq.Hostname != "rabbitmq" {
		t.Errorf("RabbitMQ advertises %s and is called %s", settings["stream.advertised_host"], mq.Hostname)
	}
	stream := settings["stream.listeners.tcp.1"]
	if stream == "" || settings["stream.advertised_port"] != stream || !slices.Contains(mq.Expose, stream) || mq.Healthcheck.Test[len(mq.Healthcheck.Test)-1] != stream {
		t.Errorf("RabbitMQ listens at %q, advertises %q, exposes %v and is checked by %q", stream, settings["stream.advertised_port"], mq.Expose, mq.Healthcheck.Test)
	}
	if plugins := readFile(t, "deploy/rabbitmq/enabled_plugins"); strings.TrimSpace(plugins) != "[rabbitmq_stream]." {
		t.Errorf("plugins: %s", plugins)
	}
	if _, tag, _ := strings.Cut(mq.Image, ":"); !strings.HasPrefix(tag, "4") {
		t.Errorf("RabbitMQ is %s", mq.Image)
	}
	if !slices.Contains(c.Services["redis"].Command, "noeviction") {
		t.Errorf("Redis: %q", c.Services["redis"].Command)
	}

	// The balancer: what its file asks of the environment is there, and leads to the gateways.
	balancer := c.Services["balancer"]
	asked := map[string]bool{}
	for _, m := range regexp.MustCompile(`\$\{([A-Z0-9_]+)\}`).FindAllStringSubmatch(readFile(t, "deploy/haproxy.cfg"), -1) {
		asked[m[1]] = true
		if balancer.Environment[m[1]] == "" {
			t.Errorf("haproxy.cfg asks for %s", m[1])
		}
	}
	for name := range balancer.Environment {
		if !asked[name] {
			t.Errorf("haproxy.cfg does not ask for %s", name)
		}
	}
	for number, name := range map[string]string{"1": "gateway-1", "2": "gateway-2"} {
		g, prefix := c.Services[name], "GATEWAY_"+number+"_"
		if balancer.Environment[prefix+"HOST"] != name || g == nil ||
			balancer.Environment[prefix+"GRPC_PORT"] != port(t, g.Environment["AETHER_GRPC_ADDR"]) ||
			balancer.Environment[prefix+"HTTP_PORT"] != port(t, g.Environment["AETHER_HTTP_ADDR"]) {
			t.Errorf("the balancer does not lead to %s: %v", name, balancer.Environment)
		}
	}
	for variable, published := range map[string]string{"BALANCER_GRPC": balancer.Ports[0], "BALANCER_HTTP": balancer.Ports[1]} {
		if !strings.HasSuffix(published, ":"+port(t, balancer.Environment[variable])) {
			t.Errorf("%s is %s and %s is published", variable, balancer.Environment[variable], published)
		}
	}
	check := exec.Command("haproxy", "-c", "-f", root+"deploy/haproxy.cfg")
	check.Env = []string{"PATH=" + os.Getenv("PATH")}
	for name, value := range balancer.Environment {
		if strings.HasSuffix(name, "_HOST") {
			value = "127.0.0.1" // there are no such names here
		}
		check.Env = append(check.Env, name+"="+value)
	}
	if out, err := check.CombinedOutput(); err != nil || bytes.Contains(out, []byte("WARNING")) {
		t.Errorf("haproxy: %v\n%s", err, out)
	}

	// The local stack has the same parts.
	parts := regexp.MustCompile(`(?m)^all="(.*)"$`).FindStringSubmatch(readFile(t, "scripts/local-stack.sh"))
	if parts == nil || len(strings.Fields(parts[1])) != len(c.Services) {
		t.Fatalf("local-stack.sh has %q", parts)
	}
	for _, part := range strings.Fields(parts[1]) {
		if c.Services[part] == nil {
			t.Errorf("compose has no %s", part)
		}
	}
}

// The image holds the program and nothing else, which does not run as root.
func TestDockerfile(t *testing.T) {
	t.Parallel()
	c := readCompose(t)
	text := strings.ReplaceAll(readFile(t, "Dockerfile"), "\\\n", " ")
	var stages []map[string][]string
	for line := range strings.Lines(text) {
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		switch {
		case word == "" || strings.HasPrefix(word, "#"):
			continue
		case word == "FROM":
			stages = append(stages, map[string][]string{})
		case len(stages) == 0:
			t.Fatalf("%s before the first FROM", word)
		}
		last := stages[len(stages)-1]
		last[word] = append(last[word], rest)
	}
	if len(stages) != 2 {
		t.Fatalf("there are %d stages", len(stages))
	}
	build, image := stages[0], stages[1]
	goVersion := regexp.MustCompile(`(?m)^go (\d+\.\d+)`).FindStringSubmatch(readFile(t, "go.mod"))[1]
	if from := build["FROM"][0]; !strings.HasPrefix(from, "golang:"+goVersion+"-") || !strings.HasSuffix(from, " AS build") {
		t.Errorf("go.mod wants Go %s, and it is built with %s", goVersion, from)
	}
	command := build["RUN"][len(build["RUN"])-1]
	for _, want := range []string{"CGO_ENABLED=0 go build", "-o /out/gateway ./cmd/gateway", "internal/version.version=${VERSION}", "internal/version.commit=${COMMIT}"} {
		if !strings.Contains(command, want) {
			t.Errorf("the build lacks %q: %s", want, command)
		}
	}
	for _, linked := range regexp.MustCompile(`-X (\S+)/(internal/version)\.(\w+)=`).FindAllStringSubmatch(command, -1) {
		if linked[1] != "github.com/aether-gateway/gateway" || !regexp.MustCompile(`(?m)^\t`+linked[3]+`\s+string$`).MatchString(readFile(t, "internal/version/version.go")) {
			t.Errorf("there is no variable %q", linked[0])
		}
	}
	for arg := range c.Services["gateway-1"].Build.Args {
		if !strings.Contains(strings.Join(build["ARG"], " "), arg+"=") {
			t.Errorf("the Dockerfile takes no argument %s", arg)
		}
	}
	if image["FROM"][0] != "scratch" || !strings.Contains(strings.Join(image["COPY"], " "), "ca-certificates.crt") {
		t.Errorf("the image: %v", image)
	}
	if user := image["USER"]; len(user) != 1 || user[0] != c.Services["gateway-1"].User {
		t.Errorf("it runs as %v", user)
	}
	var entry, run []string
	if err := yaml.Unmarshal([]byte(image["ENTRYPOINT"][0]), &entry); err != nil || !slices.Equal(entry, []string{"/gateway"}) {
		t.Errorf("it begins with %v, %v", entry, err)
	}
	if err := yaml.Unmarshal([]byte(image["CMD"][0]), &run); err != nil || parses(run) != nil {
		t.Errorf("it runs %v, %v", run, err)
	}
	if exposed := strings.Fields(image["EXPOSE"][0]); !slices.Equal(exposed, c.Services["gateway-1"].Expose) {
		t.Errorf("it exposes %v", exposed)
	}

	// What the program is made of is let into the build.
	ignored := strings.Fields(readFile(t, ".dockerignore"))
	list := exec.Command("go", "list", "-deps", "-f", "{{if .Module}}{{if .Module.Main}}{{.Dir}}{{end}}{{end}}", "./cmd/gateway")
	list.Dir = root
	out, err := list.Output()
	if err != nil {
		t.Fatal(err)
	}
	top, err := filepath.Abs(root)
	if err != nil {
		t.Fatal(err)
	}
	for dir := range strings.Lines(string(out)) {
		dir, err := filepath.Rel(top, strings.TrimSpace(dir))
		first, _, _ := strings.Cut(filepath.ToSlash(dir), "/")
		if err != nil || !slices.Contains(ignored, "!"+first) {
			t.Errorf("%s does not come into the build", dir)
		}
	}
}
