package arch

import (
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/steadyrl/steady/config"
)

// onlyChecked are keys with a single legal value in this build, which Validate enforces.
var onlyChecked = []string{"Engine.TrainerRanks", "Rollout.StalenessPolicy", "Rollout.MaxCallsPerTurn"}

// leaves lists the settings of a section as "Section.Field".
func leaves(t reflect.Type) []string {
	var out []string
	for i := range t.NumField() {
		f := t.Field(i)
		if f.Type.Kind() == reflect.Struct {
			for _, name := range leaves(f.Type) {
				if !strings.Contains(name, ".") {
					name = f.Name + "." + name
				}
				out = append(out, name)
			}
			continue
		}
		out = append(out, f.Name)
	}
	return out
}

// unused returns the settings that no text mentions as "Section.Field", or as ".Field" beside a use of the section.
func unused(names, texts []string) []string {
	all := strings.Join(texts, "\n")
	var out []string
	for _, name := range names {
		section, field, nested := strings.Cut(name, ".")
		if !nested {
			field = name
		}
		mentioned := regexp.MustCompile(`\.` + field + `\b`).MatchString(all)
		if nested {
			mentioned = mentioned && regexp.MustCompile(`\.`+section+`\b`).MatchString(all)
		}
		if !mentioned {
			out = append(out, name)
		}
	}
	return out
}

// A setting that is accepted and then ignored is worse than one that is refused.
func TestSettings_everyKeyHasAReader(t *testing.T) {
	t.Parallel()
	var texts []string
	for _, name := range files(t) {
		if strings.HasSuffix(name, ".go") && !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "config/") {
			// Activities meet the configuration through their Run, without naming its package.
			if text := read(t, name); strings.Contains(text, `"`+module+`/config"`) || strings.Contains(text, "run.Config.") {
				texts = append(texts, text)
			}
		}
	}
	ignored := unused(leaves(reflect.TypeFor[config.Config]()), texts)
	for _, name := range ignored {
		if !slices.Contains(onlyChecked, name) {
			t.Errorf("nobody outside package config reads the setting %s", name)
		}
	}
}

func TestSettings_anIgnoredKeyIsFound(t *testing.T) {
	t.Parallel()
	type section struct{ Used, Ignored int }
	type tree struct {
		Top   string
		Lower section
	}
	names := leaves(reflect.TypeFor[tree]())
	if want := []string{"Top", "Lower.Used", "Lower.Ignored"}; !reflect.DeepEqual(names, want) {
		t.Errorf("settings = %q, want %q", names, want)
	}
	got := unused(names, []string{"c.Top", "l := c.Lower\nl.Used", "Ignored"})
	if want := []string{"Lower.Ignored"}; !reflect.DeepEqual(got, want) {
		t.Errorf("unused = %q, want %q", got, want)
	}
}
