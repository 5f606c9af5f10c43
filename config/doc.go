// Package config is the configuration of a run: one struct tree, its defaults, the embedded recipes, strict
// loading, validation and printing.
//
// The pipeline is: Default, then the recipe, then files from left to right, then --set assignments. Every
// layer goes through one strict decoder, which reports all problems of a layer at once and remembers where
// each value came from. Validate then reports every broken rule at once. Lists replace, structs merge.
//
// Loading reads the named files and nothing else: no environment, no directories, no network, no
// defaults that depend on the machine. A Config is plain data; its JSON is the input of the workflow
// TrainRun, and what Print writes is valid input again.
//
// The package imports internal/fault and a YAML parser. Domain packages do not import it: workers maps it to
// their options.
package config
