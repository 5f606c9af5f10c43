package main

import (
	"fmt"

	"github.com/steadyrl/steady/config"
)

// configFlags choose a configuration.
type configFlags struct {
	Recipe string   `help:"Embedded recipe to build on: demo, sc-taco, sc-taco-1gpu, sc-taco-2gpu." placeholder:"NAME"`
	File   []string `short:"f" help:"YAML file over the recipe; may be repeated, later files win." type:"path" placeholder:"FILE"`
	Set    []string `help:"Assignment over everything, for example --set run.steps=10; may be repeated." sep:"none" placeholder:"KEY=VALUE"`
}

func (f configFlags) load(recipe string) (*config.Config, config.Sources, error) {
	if f.Recipe != "" {
		recipe = f.Recipe
	}
	return config.Load(config.Options{Recipe: recipe, Files: f.File, Sets: f.Set})
}

type configCmd struct {
	Print    configPrintCmd    `cmd:"" help:"Print the effective configuration, commented, with the source of every value."`
	Validate configValidateCmd `cmd:"" help:"Report every problem of a configuration."`
	Recipes  configRecipesCmd  `cmd:"" help:"List the embedded recipes."`
}

type configPrintCmd struct {
	configFlags
	JSON bool `help:"Print JSON, the input of the workflow TrainRun."`
}

// Run prints the configuration, unless it has a mistake. What only keeps this program from running it is a warning.
func (c *configPrintCmd) Run(s *streams) error {
	cfg, sources, err := c.load("")
	if err != nil {
		return err
	}
	open, err := cfg.Examine(sources)
	if err != nil {
		return err
	}
	for _, line := range open {
		fmt.Fprintln(s.err, "warning: cannot be run as it is:", line)
	}
	text := cfg.YAML(sources)
	if c.JSON {
		if text, err = cfg.JSON(); err != nil {
			return err
		}
	}
	_, err = s.out.Write(text)
	return err
}

type configValidateCmd struct{ configFlags }

// Run validates the configuration.
func (c *configValidateCmd) Run(s *streams) error {
	cfg, sources, err := c.load("")
	if err != nil {
		return err
	}
	if err := cfg.Validate(sources); err != nil {
		return err
	}
	_, err = fmt.Fprintln(s.out, "the configuration is valid")
	return err
}

type configRecipesCmd struct{}

// Run lists the recipes.
func (configRecipesCmd) Run(s *streams) error {
	for _, r := range config.Recipes() {
		if _, err := fmt.Fprintf(s.out, "%-14s %s\n", r.Name, r.About); err != nil {
			return err
		}
	}
	return nil
}
