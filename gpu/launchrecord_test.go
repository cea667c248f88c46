package gpu

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"capgpu/ddf/fake"
)

// Every third launch of a session is recorded; refused ones do not count.
func TestLaunchRecords(t *testing.T) {
	for every, want := range map[uint64][]int{0: nil, 1: {1, 2, 3, 4, 5, 6, 7}, 3: {3, 6}} {
		t.Run(fmt.Sprint(every), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newMemRig(t, func(c *Config, _ *fake.Options) { c.LaunchRecords = every })
				s := r.open("alice")
				b, p, q := buf(t, s, 4096), prog(t, s, "copy"), r.queue(s, 16, 4096)
				c := buf(t, s, 4096)
				for range 7 {
					q.launch(p, whole(b), whole(c))
					requireOK(t, q.one())
					q.launch(p) // without bindings: refused
					q.one()
				}
				require.NoError(t, r.dev.Close(context.Background()))
				records, err := r.fn.Grants().Audit.Snapshot(0, 1000)
				require.NoError(t, err)
				var got []int
				for _, rec := range records {
					var session, launch int
					if n, _ := fmt.Sscanf(rec.Detail, `tenant=alice session=%d launch=%d program="copy" grid=`, &session, &launch); rec.Kind == "launch" {
						require.Equal(t, 2, n, rec.Detail)
						got = append(got, launch)
					}
				}
				require.Equal(t, want, got)
				r.close()
			})
		})
	}
}
