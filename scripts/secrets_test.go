package scripts

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

func TestSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "new", "secrets")
	read := func() map[string]string {
		t.Helper()
		if out, err := exec.Command("./secrets.sh", dir).CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v\n%s", err, out)
		}
		files, err := os.ReadDir(dir)
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]string{}
		for _, f := range files {
			text, err := os.ReadFile(filepath.Join(dir, f.Name()))
			if err != nil {
				t.Fatal(err)
			}
			found[f.Name()] = string(text)
		}
		return found
	}
	first := read()
	if len(first) != 6 || len(first["signing.hs256"]) < 64 || len(first["redis_password"]) != 48 || first["redis_password"] == first["rabbitmq_password"] {
		t.Errorf("made %q", first)
	}
	if !strings.HasSuffix(first["redis.conf"], " "+first["redis_password"]+"\n") || !strings.HasSuffix(first["rabbitmq_user.conf"], " "+first["rabbitmq_password"]+"\n") {
		t.Errorf("the servers have other passwords than their clients: %q", first)
	}
	if info, err := os.Stat(dir); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("others can enter %s: %v %v", dir, info.Mode(), err)
	}
	for name, text := range read() {
		if text != first[name] {
			t.Errorf("%s was replaced", name)
		}
	}
	if out, err := exec.Command("./secrets.sh").CombinedOutput(); err == nil {
		t.Errorf("without a directory: %s", out)
	}
}
