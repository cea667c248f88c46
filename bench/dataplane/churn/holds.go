package churn

import (
	"context"
)

// drop forgets a session and closes this process's part of those below.
func (w *worker) drop(n *node) {
	list := &w.trees
	if n.parent != nil {
		list = &n.parent.below
	}
	for i, other := range *list {
		if other == n {
			*list = append((*list)[:i], (*list)[i+1:]...)
			break
		}
	}
	nodes, buffers := n.close()
	w.nodes, w.buffers = w.nodes-nodes, w.buffers-buffers
}

// close returns how many sessions and buffers ended with it.
func (n *node) close() (nodes, buffers int) {
	ctx, cancel := context.WithTimeout(context.Background(), opTimeout)
	defer cancel()
	for _, c := range n.below {
		more, of := c.close()
		nodes, buffers = nodes+more, buffers+of
	}
	_ = n.session.Close(ctx) // it may be gone with the one above, or the driver
	return nodes + 1, buffers + len(n.buffers)
}

// forgetLost drops everything that was lost with a driver.
func (w *worker) forgetLost() {
	for i := 0; i < len(w.trees); {
		if n := w.trees[i]; n.session.Err() != nil {
			w.drop(n)
			continue
		}
		i++
	}
}

func (w *worker) closeAll() {
	for len(w.trees) > 0 {
		w.drop(w.trees[0])
	}
}

// holds adds up the worker's holdings, in whole pages as charged.
func (w *worker) holds() Holds {
	h := Holds{Ops: w.ops}
	var add func(*node)
	add = func(n *node) {
		h.Sessions++
		if n.queue != nil {
			h.Queues++
		}
		for _, b := range n.buffers {
			h.Buffers++
			h.Bytes += (b.Size() + 4095) &^ 4095
		}
		for _, c := range n.below {
			add(c)
		}
	}

	for _, n := range w.trees {
		add(n)
	}

	return h
}
