// Command fetchtemporal puts the official temporal binary where a build or a test needs it.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"

	"github.com/steadyrl/steady/internal/devserver"
	"github.com/steadyrl/steady/internal/fault"
)

func main() {
	to := flag.String("to", filepath.Join(".tools", "temporal"), "file to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	b, err := devserver.Fetch(ctx, *to, []string{filepath.Join(".tools", "temporal"), filepath.Join("bin", "temporal")}, os.Stderr)
	if err != nil {
		fmt.Fprintln(os.Stderr, "error:", err)
		if hint := fault.HintOf(err); hint != "" {
			fmt.Fprintln(os.Stderr, "try:", hint)
		}
		os.Exit(1)
	}
	fmt.Printf("%s: temporal %s (server %s, UI %s)\n", b.Path, b.CLI, b.Server, b.UI)
}
