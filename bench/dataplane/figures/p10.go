package figures

import (
	"context"
	"fmt"
	"time"

	"capgpu/bench/dataplane/hostile"
	"capgpu/bench/dataplane/report"
	"capgpu/internal/sandbox"
)

// hostileInput is P10.
func hostileInput(ctx context.Context, e *Env) ([]report.Row, error) {
	r, err := hostile.Compare(ctx, e.Submissions)
	if err != nil {
		return nil, err
	}

	e.Say("P10: %d submissions in %v, %d accepted; codes %v", r.Submissions, r.Took.Round(time.Second), r.Accepted, r.Codes)
	compared, calls := float64(r.Submissions), float64(sandbox.Driver.Calls())
	rows := []report.Row{
		report.Value("P10", fmt.Sprintf("random submissions that ended as the model says, in %.0f s", r.Took.Seconds()), report.Number(compared), "", compared, "", report.AtLeast(1e8, 1e8)),
		report.Value("P10", "system calls that a driver may make", report.Number(calls), "", calls, "", report.AtMost(60, 60)),
	}

	if e.Fuzz == 0 {
		return rows, nil
	}

	root, err := repository(ctx)
	if err != nil {
		return nil, err
	}

	f, err := hostile.Fuzz(ctx, root, e.Fuzz)
	if err != nil {
		return nil, err
	}

	n := float64(f.Executions)
	return append(rows, report.Value("P10", fmt.Sprintf("executions of %d fuzz targets in %.0f s", f.Targets, e.Fuzz.Seconds()), report.Number(n), "", n, "", report.AtLeast(5e6, 5e6))), nil
}
