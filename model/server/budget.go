package server

import (
	"context"
	"encoding/json"
	"math"

	"capgpu/client"
)

// budgetOf returns a session's usage and limits. A missing limit is its tenant's,
// which other sessions of that tenant use as well.
func budgetOf(ctx context.Context, s *client.Session, c *client.Conn, device uint32) ([]client.BudgetEntry, error) {
	entries, err := s.Budget(ctx)
	if err != nil {
		return nil, err
	}

	text, err := c.Status(ctx, device)
	if err != nil {
		return entries, nil // the session's own limits are true as well
	}

	limits := tenantLimits(text, c.Tenant())
	for i := range entries {
		e := &entries[i]
		if limit, known := limits[e.Resource]; known && e.Limit == math.MaxUint64 {
			e.Limit = limit
		}
	}

	return entries, nil
}

// tenantLimits reads the limits of a tenant from a driver's status (gpu.Status).
func tenantLimits(status []byte, tenant string) map[string]uint64 {
	var st struct {
		Tenants []struct {
			Tenant string `json:"tenant"`
			Budget []struct {
				Class string `json:"class"`
				Limit uint64 `json:"limit"`
			} `json:"budget"`
		} `json:"tenants"`
	}

	if json.Unmarshal(status, &st) != nil {
		return nil
	}

	limits := map[string]uint64{}
	for _, t := range st.Tenants {
		if t.Tenant != tenant {
			continue
		}
		for _, b := range t.Budget {
			limits[b.Class] = b.Limit
		}
	}

	return limits
}
