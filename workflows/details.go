package workflows

import (
	"fmt"
	"strings"

	"go.temporal.io/sdk/temporal"
	"go.temporal.io/sdk/workflow"

	"github.com/steadyrl/steady/internal/contract"
	"github.com/steadyrl/steady/internal/record"
)

// runDetails renders what the UI shows of a run, as Markdown.
func runDetails(p contract.Progress, export *contract.ExportOutput, failure, warning, report string) string {
	var b strings.Builder
	phase := p.Phase
	if p.Paused {
		phase += " (paused: send the update `resume`)"
	}
	fmt.Fprintf(&b, "**%s**\n\n", phase)
	if p.Lineage != "" && p.Lineage != record.FirstLineage {
		fmt.Fprintf(&b, "Lineage `%s`, opened by a rollback\n\n", p.Lineage)
	}
	if p.Steps > 0 {
		fmt.Fprintf(&b, "`%s` step %d of %d\n\n", bar(p.Step, p.Steps, 30), p.Step, p.Steps)
	}
	if failure != "" {
		fmt.Fprintf(&b, "**Failure:** %s\n\n", failure)
	}
	if warning != "" {
		fmt.Fprintf(&b, "**Warning:** %s\n\n", warning)
	}
	if p.Alarm != "" {
		fmt.Fprintf(&b, "**Alarm:** %s\n\n", p.Alarm)
	}
	if len(p.Stalled) > 0 {
		b.WriteString("**No progress:**\n\n")
		for _, s := range p.Stalled {
			fmt.Fprintf(&b, "- %s\n", s)
		}
		b.WriteString("\n")
	}
	if s := settingsLine(p.Settings); s != "" {
		fmt.Fprintf(&b, "Changed by message: %s\n\n", s)
	}
	if p.Dataset != "" {
		fmt.Fprintf(&b, "Data: %s\n\n", p.Dataset)
	}
	if p.Last.RewardMean != nil || p.Last.GradNorm != nil {
		b.WriteString("| last step | |\n| --- | ---: |\n")
		for _, m := range []struct {
			name string
			v    *float64
		}{
			{"mean reward", p.Last.RewardMean},
			{"groups without spread", p.Last.ZeroSpread},
			{"gradient norm", p.Last.GradNorm},
			{"SC correction", p.Last.Correction},
			{"entropy, nats", p.Last.Entropy},
			{"mean lag, versions", p.Last.LagMean},
			{"seconds", p.Last.Seconds},
		} {
			fmt.Fprintf(&b, "| %s | %s |\n", m.name, number(m.v))
		}
		b.WriteString("\n")
	}
	if p.Trainer != "" {
		fmt.Fprintf(&b, "Trainer `%s` · groups open %d, finished %d, dropped %d · trajectories trained %d\n\n", p.Trainer, p.Open, p.Done, p.Drops, p.Trained)
	}
	rows := p.Dev
	if export != nil {
		rows = append(append([]contract.DevRow(nil), rows...), export.Dev)
	}
	b.WriteString(devTable(rows))
	if len(p.Dev) >= contract.LoopDevRows {
		b.WriteString("\nThe first, the best, the newest and some between; `steady report` has every validation.\n")
	}
	if export != nil {
		fmt.Fprintf(&b, "\nExported and verified: %d tensors, %d bytes, in `%s`\n", export.Tensors, export.Bytes, export.Dir)
	}
	if report != "" {
		fmt.Fprintf(&b, "\nReport: `%s` in the artifact store\n", report)
	}
	return b.String()
}

func devTable(rows []contract.DevRow) string {
	if len(rows) == 0 {
		return ""
	}
	var b strings.Builder
	b.WriteString("| dev set | solved | acc | pass rate | format ok | tool used | cut |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: |\n")
	for _, d := range rows {
		name := "step " + strings.TrimLeft(d.Name, "0")
		switch {
		case d.Name == "export":
			name = "exported files"
		case d.Version == 0:
			name = "step 0"
		}
		fmt.Fprintf(&b, "| %s | %d/%d | %.2f %% | %.2f %% | %.2f %% | %d | %.2f %% |\n",
			name, d.Solved, d.Problems, 100*d.Acc, 100*d.PassRate, 100*d.FormatOK, d.ToolUsed, 100*d.CutShare)
	}
	return b.String()
}

func bar(done, all, width int) string {
	n := 0
	if all > 0 {
		n = min(width, done*width/all)
	}
	return strings.Repeat("█", n) + strings.Repeat("░", width-n)
}

func number(v *float64) string {
	if v == nil {
		return "–"
	}
	return fmt.Sprintf("%.4g", *v)
}

func datasetLine(d contract.DatasetResult) string {
	return fmt.Sprintf("%d rows read, %d for training, %d for dev", d.Rows, d.Train, d.Dev)
}

// upsert writes the search attributes, one event, where the namespace has them.
func upsert(ctx workflow.Context, spec contract.RunSpec, p contract.Progress) {
	if !spec.SearchAttributes {
		return
	}
	ups := []temporal.SearchAttributeUpdate{
		temporal.NewSearchAttributeKeyKeyword(contract.AttrRunName).ValueSet(spec.Run),
		temporal.NewSearchAttributeKeyKeyword(contract.AttrPhase).ValueSet(p.Phase),
		temporal.NewSearchAttributeKeyInt64(contract.AttrStep).ValueSet(int64(p.Step)),
		temporal.NewSearchAttributeKeyInt64(contract.AttrPolicyVersion).ValueSet(int64(p.Step)),
	}
	if p.Last.RewardMean != nil {
		ups = append(ups, temporal.NewSearchAttributeKeyFloat64(contract.AttrReward).ValueSet(*p.Last.RewardMean))
	}
	if n := len(p.Dev); n > 0 {
		ups = append(ups, temporal.NewSearchAttributeKeyFloat64(contract.AttrDevAccuracy).ValueSet(p.Dev[n-1].Acc))
	}
	if err := workflow.UpsertTypedSearchAttributes(ctx, ups...); err != nil {
		workflow.GetLogger(ctx).Warn("search attributes were not written", "error", err)
	}
}
