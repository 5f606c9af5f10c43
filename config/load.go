package config

import (
	"embed"
	"encoding/json"
	"os"
	"reflect"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/steadyrl/steady/internal/fault"
)

// Bundled is the value of a path that stands for the demo's files, which are part of the program.
const Bundled = "bundled"

//go:embed recipes/*.yaml
var recipeFiles embed.FS

// recipes lists the layers of each recipe, in order.
var recipes = []struct {
	name, about string
	layers      []string
}{
	{"demo", "a small model and generated problems, minutes on two cores", []string{"demo"}},
	{"sc-taco", "Qwen3-4B on TACO, 200 steps, the published shape of 4 + 4 GPUs; refused at start, as its trainer is sharded over four", []string{"sc-taco"}},
	{"sc-taco-1gpu", "sc-taco on one GPU that trains and generates in turn (H200)", []string{"sc-taco", "sc-taco-1gpu"}},
	{"sc-taco-2gpu", "sc-taco on two GPUs, one for each side (the trainer's: H200 or RTX PRO 6000)", []string{"sc-taco", "sc-taco-2gpu"}},
}

// Recipe is an embedded recipe.
type Recipe struct{ Name, About string }

// Recipes lists the embedded recipes.
func Recipes() []Recipe {
	out := make([]Recipe, len(recipes))
	for i, r := range recipes {
		out[i] = Recipe{r.name, r.about}
	}
	return out
}

// Options say what Load reads.
type Options struct {
	Recipe string   // name of an embedded recipe; empty: the first file with a key recipe decides
	Files  []string // YAML files, later ones win
	Sets   []string // assignments "a.b=value", value in YAML, later ones win
}

// Load returns the configuration of o and the source of every value. It does not Validate, so that an
// incomplete configuration can be printed. Errors: Invalid with every problem found, one a line; a file that
// cannot be read is NotFound or Invalid. A retry cannot help.
func Load(o Options) (*Config, Sources, error) {
	b := builder{config: Default(), sources: Sources{}}
	texts := make([]string, len(o.Files))
	for i, name := range o.Files {
		data, err := os.ReadFile(name)
		if err != nil {
			kind := fault.Invalid
			if os.IsNotExist(err) {
				kind = fault.NotFound
			}
			return nil, nil, fault.New(kind, "config.Load", "%w", err).
				WithHint("give a YAML file; `steady config print --recipe demo` writes one to start from")
		}
		texts[i] = string(data)
	}
	layers := make([]*layer, 0, len(o.Files)+len(o.Sets))
	nodes := make([]*yaml.Node, 0, cap(layers))
	for i, text := range texts {
		l := &layer{name: "file " + o.Files[i], lines: true, sources: b.sources}
		layers, nodes = append(layers, l), append(nodes, l.parse(text))
	}
	for _, set := range o.Sets {
		l := &layer{name: "--set " + set, sources: b.sources}
		layers, nodes = append(layers, l), append(nodes, l.assignment(set))
	}
	b.build(o.Recipe, layers, nodes)
	return b.result("config.Load")
}

// DecodeJSON reads the input of the workflow TrainRun: an object with the keys of Config, as JSON writes it.
// Keys that are missing have the value of the recipe it names, or the default. Errors: Invalid with every
// problem found, each with its key.
func DecodeJSON(data []byte) (*Config, Sources, error) {
	b := builder{config: Default(), sources: Sources{}}
	l := &layer{name: "input", sources: b.sources}
	var node *yaml.Node
	if !json.Valid(data) {
		l.problem(nil, "", "not JSON")
	} else if node = l.parse(string(data)); node != nil && node.Kind != yaml.MappingNode {
		l.problem(nil, "", "want an object with the keys of the configuration, got %s", kindOf(node))
		node = nil
	}
	b.build("", []*layer{l}, []*yaml.Node{node})
	c, sources, err := b.result("config.DecodeJSON")
	if err != nil {
		return nil, nil, err
	}
	return c, sources, nil
}

// assignment turns "a.b=value" into the document {a: {b: value}}.
func (l *layer) assignment(set string) *yaml.Node {
	key, text, ok := strings.Cut(set, "=")
	if !ok || key == "" {
		l.problem(nil, "", "want key=value, for example run.steps=10")
		return nil
	}
	value := l.parse(text)
	if value == nil {
		if len(l.problems) > 0 {
			return nil
		}
		value = &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str"} // key= is the empty text
	}
	parts := strings.Split(key, ".")
	for _, part := range slices.Backward(parts) {
		name := &yaml.Node{Kind: yaml.ScalarNode, Tag: "!!str", Value: part}
		value = &yaml.Node{Kind: yaml.MappingNode, Tag: "!!map", Content: []*yaml.Node{name, value}}
	}
	return value
}

// builder lays layers over the defaults and collects their problems.
type builder struct {
	config   *Config
	sources  Sources
	problems []string
}

// build applies the recipe and then the layers. The recipe is the one asked for, else the one that a layer names.
func (b *builder) build(recipe string, layers []*layer, nodes []*yaml.Node) {
	asked := recipe
	for i, n := range nodes {
		named := recipeKey(n)
		switch {
		case named == "":
		case asked == "":
			asked = named
		case named != asked:
			layers[i].problem(n, "recipe", "%q disagrees with the recipe %q chosen before", named, asked)
		}
	}
	b.apply(asked)
	for i, l := range layers {
		if nodes[i] != nil {
			l.apply(nodes[i], reflect.ValueOf(b.config).Elem(), "")
		}
		b.problems = append(b.problems, l.problems...)
	}
}

// recipeKey returns the value of the key recipe of a document, if it has one.
func recipeKey(n *yaml.Node) string {
	if n == nil || n.Kind != yaml.MappingNode {
		return ""
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		if n.Content[i].Value == "recipe" && n.Content[i+1].Kind == yaml.ScalarNode && !isNull(n.Content[i+1]) {
			return n.Content[i+1].Value
		}
	}
	return ""
}

// recipeText is the text of a recipe's own layer.
func recipeText(name string) string {
	text, err := recipeFiles.ReadFile("recipes/" + name + ".yaml")
	if err != nil {
		panic("config: recipe " + name + " is listed but not embedded") // TestRecipes_allLoad guards it
	}
	return string(text)
}

// apply lays the named recipe over the defaults; "" is none.
func (b *builder) apply(recipe string) {
	if recipe == "" {
		return
	}
	names := []string{}
	for _, r := range recipes {
		names = append(names, r.name)
		if r.name != recipe {
			continue
		}
		for _, name := range r.layers {
			l := &layer{name: "recipe " + name, sources: b.sources}
			if n := l.parse(recipeText(name)); n != nil {
				l.apply(n, reflect.ValueOf(b.config).Elem(), "")
			}
			b.problems = append(b.problems, l.problems...)
		}
		b.config.Recipe = recipe
		b.sources["recipe"] = "recipe " + recipe
		return
	}
	b.problems = append(b.problems, "recipe: want one of "+strings.Join(names, ", ")+", got "+short(recipe))
}

func (b *builder) result(op string) (*Config, Sources, error) {
	if len(b.problems) > 0 {
		return nil, nil, fault.New(fault.Invalid, op, "%s", strings.Join(b.problems, "\n")).
			WithHint("`steady config print` shows every key with its meaning")
	}
	return b.config, b.sources, nil
}
