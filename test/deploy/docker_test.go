// Package deploy checks the files of docker/ against the program, as far as no container engine is needed.
package deploy

import (
	"fmt"
	"go/version"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/workers"
)

type compose struct {
	Services map[string]struct {
		Image      string         `yaml:"image"`
		Entrypoint []string       `yaml:"entrypoint"`
		Command    []string       `yaml:"command"`
		DependsOn  map[string]any `yaml:"depends_on"`
		Volumes    []string       `yaml:"volumes"`
		Ports      []string       `yaml:"ports"`
		Profiles   []string       `yaml:"profiles"`
		Networks   []string       `yaml:"networks"`
		ReadOnly   bool           `yaml:"read_only"`
		CapDrop    []string       `yaml:"cap_drop"`
		Security   []string       `yaml:"security_opt"`
		Build      struct {
			Dockerfile string `yaml:"dockerfile"`
		} `yaml:"build"`
	} `yaml:"services"`
	Volumes  map[string]any `yaml:"volumes"`
	Networks map[string]struct {
		Internal bool `yaml:"internal"`
	} `yaml:"networks"`
}

func readFile(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile("../../" + name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}

// What no container engine is needed for: the compose file names roles, search attributes, services and volumes that exist, and
// every role is served once, a standby only on demand; nothing listens beyond loopback.
func TestCompose_agreesWithTheProgram(t *testing.T) {
	t.Parallel()
	text := readFile(t, "docker/compose.yaml")
	var c compose
	if err := yaml.Unmarshal([]byte(text), &c); err != nil {
		t.Fatal(err)
	}
	var served []workers.Role
	names := map[string]bool{}
	for name, s := range c.Services {
		for on := range s.DependsOn {
			if _, ok := c.Services[on]; !ok {
				t.Errorf("service %s depends on %s, which is not there", name, on)
			}
		}
		for _, v := range s.Volumes {
			from, _, _ := strings.Cut(v, ":")
			if _, ok := c.Volumes[from]; !ok && !strings.HasPrefix(from, "./") {
				t.Errorf("service %s mounts %s, which is not declared", name, from)
			}
			if strings.HasPrefix(from, "./") {
				if _, err := os.Stat("../../docker/" + from); err != nil {
					t.Errorf("service %s mounts a file that is not there: %v", name, err)
				}
			}
		}
		if len(s.Networks) == 0 {
			t.Errorf("service %s is in the default network", name)
		}
		for _, n := range s.Networks {
			if _, ok := c.Networks[n]; !ok {
				t.Errorf("service %s is in the network %s, which is not declared", name, n)
			}
		}
		if len(s.Ports) > 0 && !slices.Contains(s.Networks, "outside") {
			t.Errorf("service %s publishes a port from internal networks", name)
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("service %s publishes %s beyond loopback", name, p)
			}
		}
		if strings.HasPrefix(s.Image, "temporalio/") && len(s.Entrypoint) > 0 && s.Entrypoint[0] != "sh" {
			t.Errorf("service %s runs %s: the images of Temporal are of Alpine, which has no other shell than sh", name, s.Entrypoint[0])
		}
		if !strings.HasPrefix(s.Image, "steady:") {
			if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "latest" {
				t.Errorf("service %s takes %q, want a pinned version", name, s.Image)
			}
			continue
		}
		if !s.ReadOnly || !slices.Equal(s.CapDrop, []string{"ALL"}) || !slices.Contains(s.Security, "no-new-privileges:true") {
			t.Errorf("service %s has rights that it does not need: read_only %v, cap_drop %q, security_opt %q", name, s.ReadOnly, s.CapDrop, s.Security)
		}
		if _, err := os.Stat("../../" + s.Build.Dockerfile); err != nil || strings.Contains(s.Build.Dockerfile, "cuda") != (s.Image == "steady:cuda") {
			t.Errorf("service %s builds %s from %q: %v", name, s.Image, s.Build.Dockerfile, err)
		}
		flags := map[string]string{}
		for i := 1; i+1 < len(s.Command); i += 2 {
			flags[s.Command[i]] = s.Command[i+1]
		}
		if s.Command[0] != "worker" || flags["--data"] == "" || flags["--name"] == "" {
			t.Errorf("service %s runs %q, want a worker with --data and --name", name, s.Command)
		}
		if names[flags["--name"]] {
			t.Errorf("two workers are called %s", flags["--name"])
		}
		names[flags["--name"]] = true
		roles, err := workers.ParseRoles(flags["--roles"])
		if err != nil {
			t.Errorf("service %s: %v", name, err)
		}
		if gpu := flags["--engine"] == "cuda"; gpu || slices.Contains(s.Profiles, "gpu") {
			if !gpu || !slices.Equal(s.Profiles, []string{"gpu"}) || s.Image != "steady:cuda" {
				t.Errorf("service %s: engine %q, profiles %q and image %s do not belong together", name, flags["--engine"], s.Profiles, s.Image)
			}
			continue
		}
		if slices.Equal(roles, []workers.Role{workers.RoleJudge}) {
			for _, n := range s.Networks {
				if !c.Networks[n].Internal {
					t.Errorf("service %s reaches the network %s", name, n)
				}
			}
		}
		if slices.Contains(roles, workers.RoleStandby) {
			if !slices.Equal(s.Profiles, []string{string(workers.RoleStandby)}) {
				t.Errorf("service %s has profiles %q: a standby must be asked for by --profile standby", name, s.Profiles)
			}
			continue
		}
		if len(s.Profiles) > 0 {
			t.Errorf("service %s has profiles %q, want it always started", name, s.Profiles)
		}
		served = append(served, roles...)
	}
	want := workers.AllRoles()
	slices.Sort(want)
	slices.Sort(served)
	if !slices.Equal(served, want) {
		t.Errorf("the workers serve %v, want each of %v once", served, want)
	}
	for _, a := range contract.SearchAttributes() {
		if want := fmt.Sprintf("%s=%s", a.Name, a.Type); !regexp.MustCompile(`\b` + want + `\b`).MatchString(text) {
			t.Errorf("the search attribute %s is not made", want)
		}
	}
}

// Nothing in the images runs as root, and what they take is pinned.
func TestDockerfiles_runAsAUserFromPinnedImages(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"docker/Dockerfile", "docker/cuda.Dockerfile"} {
		text := readFile(t, name)
		if !strings.Contains(text, "useradd --create-home --uid 10001 ") || !regexp.MustCompile(`(?m)^USER 10001:10001$`).MatchString(text) {
			t.Errorf("%s does not run as the user 10001 that it makes", name)
		}
		stages := []string{}
		for _, m := range regexp.MustCompile(`(?m)^FROM (\S+)(?: AS (\S+))?$`).FindAllStringSubmatch(text, -1) {
			_, tag, ok := strings.Cut(m[1], ":")
			if !slices.Contains(stages, m[1]) && (!ok || tag == "latest") {
				t.Errorf("%s: %s is not pinned", name, m[1])
			}
			stages = append(stages, m[2])
		}
		for _, dir := range []string{"/data", "/cache"} {
			if !regexp.MustCompile(`install -d -o steady -g steady [^\n]*` + dir + `\b`).MatchString(text) {
				t.Errorf("%s: %s does not belong to the user", name, dir)
			}
		}
	}
}

// The image is built by a Go that the module accepts, and the server's settings are those of the development server.
func TestDockerfile_agreesWithTheModule(t *testing.T) {
	t.Parallel()
	mod := regexp.MustCompile(`(?m)^go (\S+)$`).FindStringSubmatch(readFile(t, "go.mod"))
	image := regexp.MustCompile(`(?m)^FROM golang:([0-9.]+)-`).FindStringSubmatch(readFile(t, "docker/Dockerfile"))
	if mod == nil || image == nil || version.Compare(version.Lang("go"+image[1]), version.Lang("go"+mod[1])) < 0 {
		t.Errorf("the image has Go %v, go.mod wants %v", image, mod)
	}
	var dynamic map[string][]struct {
		Value any `yaml:"value"`
	}
	if err := yaml.Unmarshal([]byte(readFile(t, "docker/dynamic.yaml")), &dynamic); err != nil {
		t.Fatal(err)
	}
	for key, v := range dynamic {
		if len(v) != 1 || !slices.Contains(devserver.DynamicConfig(), fmt.Sprintf("%s=%v", key, v[0].Value)) {
			t.Errorf("%s: %v is not what the development server has: %v", key, v, devserver.DynamicConfig())
		}
	}
}

// The scripts of the compose file are read by a shell that knows POSIX only, as the one of Alpine, which their images are made of.
func TestCompose_scriptsAreOfAPlainShell(t *testing.T) {
	t.Parallel()
	var c compose
	if err := yaml.Unmarshal([]byte(readFile(t, "docker/compose.yaml")), &c); err != nil {
		t.Fatal(err)
	}
	shell, err := exec.LookPath("dash")
	if err != nil {
		t.Skip("no dash: apt-get install dash brings it")
	}
	seen := 0
	for name, s := range c.Services {
		if len(s.Entrypoint) == 0 {
			continue
		}
		seen++
		script := strings.ReplaceAll(strings.Join(s.Command, "\n"), "$$", "$") // as compose hands it on
		if out, err := exec.CommandContext(t.Context(), shell, "-n", "-c", script).CombinedOutput(); err != nil {
			t.Errorf("service %s: %v\n%s", name, err, out)
		}
		for _, only := range []string{"[[", "<(", "<<<", "function ", "local ", "declare ", "{1..", "&>", "$'", "=~", "source "} {
			if strings.Contains(script, only) {
				t.Errorf("service %s has %q, which is of bash", name, only)
			}
		}
	}
	if seen < 2 {
		t.Errorf("%d scripts were found", seen)
	}
}
