package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/steadyrl/steady/config"
	"github.com/steadyrl/steady/workers"
)

// completeCommand is the hidden word after which a shell's words are completed. It is not in the grammar, because the words that follow are an
// unfinished command.
const completeCommand = "__complete"

type completionCmd struct {
	Shell string `arg:"" enum:"bash,zsh,fish" help:"Shell: bash, zsh or fish."`
}

// Help is shown by --help, below the first line.
func (completionCmd) Help() string {
	return `Prints a script that lets the shell complete commands, flags, their values, keys of --set, recipes, and the names of runs and lineages in a store. The script asks this program, so it needs no renewal.

For this shell, or for all in a start file:
  source <(steady completion bash)
  steady completion bash
  steady completion zsh
  steady completion fish

docs/cli.md says where each shell wants the script. Reads nothing, writes nothing but its output.

Exit status: 0 printed, 2 an unknown shell.`
}

// Run prints the script.
func (c *completionCmd) Run(s *streams) error {
	_, err := io.WriteString(s.out, map[string]string{"bash": bashScript, "zsh": zshScript, "fish": fishScript}[c.Shell])
	return err
}

// The scripts hand the words before the cursor to the program and get candidates, one a line: the word, a tab, a description. A first line with a
// colon asks for names of files or directories instead.
const (
	bashScript = `# Completion of steady for bash: source it.
_steady() {
	local line=${COMP_LINE:0:COMP_POINT} IFS=$' \t\n'
	local -a words
	read -ra words <<<"$line"
	[[ $line == *[[:space:]] ]] && words+=("")
	local last=${words[${#words[@]} - 1]} cut="" out
	[[ $last == *=* && $COMP_WORDBREAKS == *=* ]] && cut=${last%"${last##*=}"}
	out=$("${words[0]}" __complete "${words[@]:1}" 2>/dev/null) || return
	COMPREPLY=()
	local IFS=$'\n' c
	case $out in
	:files*) COMPREPLY=($(compgen -f -- "${last##*=}")); compopt -o filenames 2>/dev/null; return ;;
	:dirs*) COMPREPLY=($(compgen -d -- "${last##*=}")); compopt -o filenames 2>/dev/null; return ;;
	esac
	for c in $out; do
		c=${c%%$'\t'*}
		COMPREPLY+=("${c#"$cut"}")
	done
	[[ ${#COMPREPLY[@]} -eq 1 && ${COMPREPLY[0]} == *= ]] && compopt -o nospace 2>/dev/null
	return 0
}
complete -F _steady steady steady-cuda
`
	zshScript = `#compdef steady steady-cuda
# Completion of steady for zsh: source it after compinit, or put it into a folder of $fpath as _steady.
_steady() {
	local out
	local -a lines plain
	out=$("${words[1]}" __complete "${(@)words[2,CURRENT-1]}" "${words[CURRENT]}" 2>/dev/null) || return
	case $out in
	:files*) [[ $PREFIX == *=* ]] && compset -P '*='; _files; return ;;
	:dirs*) [[ $PREFIX == *=* ]] && compset -P '*='; _files -/; return ;;
	esac
	lines=("${(@f)out}")
	local line about
	for line in $lines; do
		about=${line#*$'\t'}
		plain+=("${${line%%$'\t'*}//:/\\:}${about:+:$about}")
	done
	(( ${#plain} )) && _describe steady plain -S ''
}
if [[ ${zsh_eval_context[-1]} == loadautofunc ]]; then
	_steady "$@"
else
	compdef _steady steady steady-cuda
fi
`
	fishScript = `# Completion of steady for fish: source it, or save it as ~/.config/fish/completions/steady.fish.
function __steady_complete
	set -l words (commandline -opc)
	set -l last (commandline -ct)
	set -l out ($words[1] __complete $words[2..-1] "$last" 2>/dev/null)
	switch "$out[1]"
		case ':files'
			__fish_complete_path (string replace -r '^-.*?=' '' -- "$last")
		case ':dirs'
			__fish_complete_directories (string replace -r '^-.*?=' '' -- "$last")
		case '*'
			printf '%s\n' $out
	end
end
complete -c steady -f -a '(__steady_complete)'
complete -c steady-cuda -f -a '(__steady_complete)'
`
)

// candidate is a word that may stand at the cursor.
type candidate struct{ word, about string }

const (
	askFiles = ":files"
	askDirs  = ":dirs"
)

// complete prints the candidates for the last word. It never fails: without an answer there is nothing to complete.
func complete(words []string, out io.Writer) {
	if len(words) == 0 {
		words = []string{""}
	}
	var c cli
	parser, err := grammar(&c)
	if err != nil {
		return
	}
	for _, k := range candidates(parser.Model.Node, words) {
		fmt.Fprintf(out, "%s\t%s\n", k.word, k.about)
	}
}

// candidates finds what may follow the words before the last, and begins as the last one.
func candidates(node *kong.Node, words []string) []candidate {
	at, last := words[:len(words)-1], words[len(words)-1]
	var flag *kong.Flag // which waits for its value
	positionals := 0
	given := map[string]string{}
	only := false // "--" was there
	for _, w := range at {
		name, value, inline := strings.Cut(w, "=")
		switch {
		case flag != nil:
			given[flag.Name], flag = w, nil
		case w == "--":
			only = true
		case !only && strings.HasPrefix(w, "-") && len(w) > 1:
			f := flagOf(node, name)
			if f != nil && inline {
				given[f.Name] = value
			} else if f != nil && !f.IsBool() {
				flag = f
			}
		default:
			if child := childOf(node, w); child != nil && positionals == 0 {
				node = child
				continue
			}
			positionals++
		}
	}
	switch name, value, inline := strings.Cut(last, "="); {
	case flag != nil:
		return matching(values(flag.Value, given), last, "")
	case !only && inline && strings.HasPrefix(last, "-"):
		if f := flagOf(node, name); f != nil {
			return matching(values(f.Value, given), value, name+"=")
		}
		return nil
	case !only && strings.HasPrefix(last, "-"):
		return matching(flags(node), last, "")
	}
	var all []candidate
	if positionals == 0 {
		for _, child := range node.Children {
			if !child.Hidden && child.Type == kong.CommandNode {
				all = append(all, candidate{child.Name, child.Help})
			}
		}
	}
	if target := withDefault(node); len(target.Positional) > 0 {
		i := min(positionals, len(target.Positional)-1)
		if p := target.Positional[i]; i == positionals || p.IsSlice() {
			all = append(all, values(p, given)...)
		}
	}
	return matching(all, last, "")
}

// withDefault is the command that runs if no further command is named.
func withDefault(node *kong.Node) *kong.Node {
	if node.DefaultCmd != nil {
		return node.DefaultCmd
	}
	return node
}

func childOf(node *kong.Node, name string) *kong.Node {
	i := slices.IndexFunc(node.Children, func(c *kong.Node) bool { return c.Type == kong.CommandNode && c.Name == name })
	if i < 0 {
		return nil
	}
	return node.Children[i]
}

// everyFlag lists the flags that may follow a command: its own, those of the commands above it, and those of its default.
func everyFlag(node *kong.Node) []*kong.Flag {
	var out []*kong.Flag
	for n := withDefault(node); n != nil; n = n.Parent {
		out = append(out, n.Flags...)
	}
	return slices.DeleteFunc(out, func(f *kong.Flag) bool { return f.Hidden })
}

func flagOf(node *kong.Node, word string) *kong.Flag {
	for _, f := range everyFlag(node) {
		if word == "--"+f.Name || f.Short != 0 && word == "-"+string(f.Short) {
			return f
		}
	}
	return nil
}

func flags(node *kong.Node) []candidate {
	var out []candidate
	for _, f := range everyFlag(node) {
		out = append(out, candidate{"--" + f.Name, f.Help})
		if f.Short != 0 {
			out = append(out, candidate{"-" + string(f.Short), f.Help})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	return out
}

// values are what a flag or an argument can be. given has the flags before it.
func values(v *kong.Value, given map[string]string) []candidate {
	if v.Enum != "" {
		var out []candidate
		for _, e := range v.EnumSlice() {
			out = append(out, candidate{e, ""})
		}
		return out
	}
	isAssignment := v.Flag != nil && v.Flag.PlaceHolder == "KEY=VALUE"
	switch {
	case v.Name == "recipe":
		var out []candidate
		for _, r := range config.Recipes() {
			out = append(out, candidate{r.Name, r.About})
		}
		return out
	case isAssignment:
		return configKeys()
	case v.Name == "run" && v.Flag == nil:
		return folders(given, "runs")
	case v.Name == "lineage":
		return folders(given, "runs", "*")
	case v.Name == "roles":
		out := []candidate{{"all", "every role but standby"}}
		for _, r := range append(workers.AllRoles(), workers.RoleStandby) {
			out = append(out, candidate{string(r), ""})
		}
		return out
	case v.Tag.Type == "existingdir", v.Flag != nil && v.Flag.PlaceHolder == "DIR", v.Name == "data", v.Name == "dir":
		return []candidate{{askDirs, ""}}
	case v.Tag.Type != "", v.Flag != nil && strings.HasPrefix(v.Flag.PlaceHolder, "FILE"), v.Flag != nil && v.Flag.PlaceHolder == "PATH":
		return []candidate{{askFiles, ""}}
	}
	return nil
}

// configKeys are the keys of a configuration, each with "=".
func configKeys() []candidate {
	var out []candidate
	for _, k := range config.Keys() {
		out = append(out, candidate{k.Name + "=", k.Doc})
	}
	return out
}

// folders lists the names of runs, or of their lineages, in the store of --data.
func folders(given map[string]string, under ...string) []candidate {
	data := given["data"]
	if data == "" {
		data = ".steady"
	}
	dirs, err := filepath.Glob(filepath.Join(append([]string{data, "store"}, append(under, "*")...)...))
	if err != nil {
		return nil
	}
	var out []candidate
	for _, dir := range dirs {
		name := filepath.Base(dir)
		if st, err := os.Stat(dir); err == nil && st.IsDir() && config.ValidRunName(name) && !slices.ContainsFunc(out, func(c candidate) bool { return c.word == name }) {
			out = append(out, candidate{name, ""})
		}
	}
	slices.SortFunc(out, func(a, b candidate) int { return strings.Compare(a.word, b.word) })
	return out
}

// matching keeps what begins as the word at the cursor does, with a prefix in front; descriptions have one line. A question for files stays.
func matching(all []candidate, word, prefix string) []candidate {
	var out []candidate
	for _, c := range all {
		if c.word == askFiles || c.word == askDirs {
			return []candidate{c}
		}
		if strings.HasPrefix(c.word, word) {
			about, _, _ := strings.Cut(c.about, "\n")
			out = append(out, candidate{prefix + c.word, strings.ReplaceAll(about, "\t", " ")})
		}
	}
	return out
}
