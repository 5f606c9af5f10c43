package deploy

import (
	"fmt"
	"regexp"
	"slices"
	"testing"

	"go.yaml.in/yaml/v4"

	"github.com/steadyrl/steady/workers"
)

// manifest is what the tests look at of the objects of the example.
type manifest struct {
	Kind     string
	Metadata struct {
		Name      string
		Namespace string
		Labels    map[string]string
	}
	Automount *bool `yaml:"automountServiceAccountToken"`
	Data      map[string]string
	Spec      struct {
		ServiceName string `yaml:"serviceName"`
		Selector    struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		}
		PodSelector struct {
			MatchLabels map[string]string `yaml:"matchLabels"`
		} `yaml:"podSelector"`
		PolicyTypes []string `yaml:"policyTypes"`
		Egress      []struct {
			To    []any
			Ports []struct {
				Port int
			}
		}
		Template struct {
			Metadata struct{ Labels map[string]string }
			Spec     pod
		}
		Claims []struct {
			Metadata struct{ Name string }
		} `yaml:"volumeClaimTemplates"`
	}
}

type pod struct {
	ServiceAccount  string `yaml:"serviceAccountName"`
	Automount       *bool  `yaml:"automountServiceAccountToken"`
	Grace           int    `yaml:"terminationGracePeriodSeconds"`
	HostNetwork     bool   `yaml:"hostNetwork"`
	HostPID         bool   `yaml:"hostPID"`
	SecurityContext struct {
		NonRoot bool                  `yaml:"runAsNonRoot"`
		User    int                   `yaml:"runAsUser"`
		Seccomp struct{ Type string } `yaml:"seccompProfile"`
	} `yaml:"securityContext"`
	Containers []struct {
		Image   string
		Args    []string
		EnvFrom []struct {
			Secret struct{ Name string } `yaml:"secretRef"`
		} `yaml:"envFrom"`
		Ports []struct {
			Name string
			Port int `yaml:"containerPort"`
		}
		Security struct {
			Escalation   *bool `yaml:"allowPrivilegeEscalation"`
			ReadOnly     bool  `yaml:"readOnlyRootFilesystem"`
			Privileged   bool
			Capabilities struct{ Add, Drop []string }
		} `yaml:"securityContext"`
		Resources struct {
			Requests, Limits map[string]string
		}
		Mounts []struct {
			Name string
			Path string `yaml:"mountPath"`
		} `yaml:"volumeMounts"`
	}
	Volumes []struct{ Name string }
}

func manifests(t *testing.T) []manifest {
	t.Helper()
	var all []manifest
	for _, doc := range regexp.MustCompile(`(?m)^---$`).Split(readFile(t, "docker/kubernetes/steady.yaml"), -1) {
		var m manifest
		if err := yaml.Unmarshal([]byte(doc), &m); err != nil {
			t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// Every pod has the rights of the standard "restricted" and no token, is told to end with time to drain, and mounts what its image wants to write.
func TestKubernetes_podsHaveNoRightsTheyDoNotNeed(t *testing.T) {
	t.Parallel()
	var served []workers.Role
	accounts := map[string]bool{}
	metrics := ""
	for _, m := range manifests(t) {
		if m.Kind == "ConfigMap" {
			metrics = m.Data["STEADY_METRICS"]
		}
		if m.Kind == "ServiceAccount" {
			accounts[m.Metadata.Name] = m.Automount != nil && !*m.Automount
		}
	}
	for _, m := range manifests(t) {
		if m.Kind != "Namespace" && m.Metadata.Namespace != "steady" {
			t.Errorf("%s %s is in the namespace %q", m.Kind, m.Metadata.Name, m.Metadata.Namespace)
		}
		if m.Kind != "Deployment" && m.Kind != "StatefulSet" {
			continue
		}
		name, p := m.Metadata.Name, m.Spec.Template.Spec
		for k, v := range m.Spec.Selector.MatchLabels {
			if m.Spec.Template.Metadata.Labels[k] != v {
				t.Errorf("%s selects %s=%s, which its pods do not have", name, k, v)
			}
		}
		if p.Automount == nil || *p.Automount || !accounts[p.ServiceAccount] {
			t.Errorf("%s: a token of the cluster is mounted", name)
		}
		if p.HostNetwork || p.HostPID || !p.SecurityContext.NonRoot || p.SecurityContext.User != 10001 || p.SecurityContext.Seccomp.Type != "RuntimeDefault" {
			t.Errorf("%s: %+v", name, p.SecurityContext)
		}
		// A worker drains within workers.listen's stop time-out of five seconds for each of its queues.
		if p.Grace < 60 {
			t.Errorf("%s is killed after %d s", name, p.Grace)
		}
		volumes := map[string]bool{}
		for _, v := range p.Volumes {
			volumes[v.Name] = true
		}
		for _, v := range m.Spec.Claims {
			volumes[v.Metadata.Name] = true
		}
		for _, c := range p.Containers {
			s := c.Security
			if s.Privileged || s.Escalation == nil || *s.Escalation || !s.ReadOnly || len(s.Capabilities.Add) > 0 || !slices.Equal(s.Capabilities.Drop, []string{"ALL"}) {
				t.Errorf("%s: %+v", name, s)
			}
			if c.Resources.Limits["memory"] == "" || c.Resources.Requests["cpu"] == "" || c.Resources.Requests["memory"] == "" {
				t.Errorf("%s has no bounds: %+v", name, c.Resources)
			}
			paths := map[string]bool{}
			for _, v := range c.Mounts {
				paths[v.Path] = true
				if !volumes[v.Name] {
					t.Errorf("%s mounts %s, which is not there", name, v.Name)
				}
			}
			for _, want := range []string{"/data", "/cache", "/tmp"} {
				if !paths[want] {
					t.Errorf("%s cannot write %s", name, want)
				}
			}
			i := slices.Index(c.Args, "--roles")
			roles, err := workers.ParseRoles(c.Args[i+1])
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			served = append(served, roles...)
			gpu := slices.Contains(c.Args, "cuda")
			if gpu != (c.Image == "steady:cuda") || gpu != (c.Resources.Limits["nvidia.com/gpu"] != "") {
				t.Errorf("%s: engine, image %s and GPUs %q do not belong together", name, c.Image, c.Resources.Limits["nvidia.com/gpu"])
			}
			if stable := slices.Contains(roles, workers.RoleTrainer) || slices.Contains(roles, workers.RoleStandby); stable != (m.Kind == "StatefulSet") {
				t.Errorf("%s is a %s: trainers need stable names, others none", name, m.Kind)
			}
			if slices.Contains(roles, workers.RoleJudge) != (c.EnvFrom[1].Secret.Name == "store-judge") {
				t.Errorf("%s has the keys %s", name, c.EnvFrom[1].Secret.Name)
			}
			if len(c.Ports) != 1 || fmt.Sprintf(":%d", c.Ports[0].Port) != metrics {
				t.Errorf("%s: port %v and STEADY_METRICS %s differ", name, c.Ports, metrics)
			}
		}
	}
	want := append(workers.AllRoles(), workers.RoleStandby)
	slices.Sort(want)
	slices.Sort(served)
	if !slices.Equal(served, want) {
		t.Errorf("the pods serve %v, want each of %v once", served, want)
	}
}

// A judge's pods reach names, Temporal and HTTPS, and no private address.
func TestKubernetes_judgesReachTemporalAndTheStoreOnly(t *testing.T) {
	t.Parallel()
	for _, m := range manifests(t) {
		if m.Kind != "NetworkPolicy" || m.Spec.PodSelector.MatchLabels["role"] != "judge" {
			continue
		}
		if !slices.Equal(m.Spec.PolicyTypes, []string{"Egress"}) {
			t.Errorf("the policy is of %v", m.Spec.PolicyTypes)
		}
		var ports []int
		for _, rule := range m.Spec.Egress {
			if len(rule.To) == 0 || len(rule.Ports) == 0 {
				t.Error("a rule lets everything out")
			}
			for _, p := range rule.Ports {
				ports = append(ports, p.Port)
			}
		}
		if !slices.Equal(ports, []int{53, 53, 7233, 443}) {
			t.Errorf("judges reach the ports %v", ports)
		}
		return
	}
	t.Error("no policy is for judges")
}
