// Package deploy checks the files of docker/ against the program, as far as no container engine is needed.
package deploy

import (
	"fmt"
	"go/version"
	"os"
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
	} `yaml:"services"`
	Volumes map[string]any `yaml:"volumes"`
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
		}
		for _, p := range s.Ports {
			if !strings.HasPrefix(p, "127.0.0.1:") {
				t.Errorf("service %s publishes %s beyond loopback", name, p)
			}
		}
		if !strings.HasPrefix(s.Image, "steady:") {
			if _, tag, ok := strings.Cut(s.Image, ":"); !ok || tag == "latest" {
				t.Errorf("service %s takes %q, want a pinned version", name, s.Image)
			}
			continue
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
