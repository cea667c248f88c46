package attack

import (
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"time"

	"capgpu/bench/dataplane/neighbour"
	"capgpu/bench/dataplane/paired"
	"capgpu/client"
)

// victim is a tenant that works all the time and checks everything that it has.
type victim struct {
	session *client.Session
	stop    chan struct{}
	done    chan struct{}

	mu     sync.Mutex
	took   []float64 // nanoseconds of each piece of work; guarded by mu
	errors []error   // guarded by mu
}

// ownBytes is memory of the victim's that none of its work touches.
const ownBytes = 256 << 10

func startVictim(ctx context.Context, socket string, seed uint64) (_ *victim, err error) {
	conn, err := client.Dial(ctx, socket)
	if err != nil {
		return nil, err
	}
	defer conn.Close()

	v := &victim{stop: make(chan struct{}), done: make(chan struct{})}
	if v.session, err = conn.Open(ctx, 0); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, v.session.Close(ctx))
		}
	}()

	work, err := neighbour.NewWork(ctx, v.session)
	if err != nil {
		return nil, err
	}

	var own [][]byte
	var sums [][32]byte
	random := rand.NewChaCha8([32]byte{byte(seed), byte(seed >> 8)})
	for range 4 {
		b, err := v.session.CreateBuffer(ctx, ownBytes, client.Storage)
		if err != nil {
			return nil, err
		}
		mem, err := b.Map()
		if err != nil {
			return nil, err
		}
		_, _ = random.Read(mem) // it never fails
		own, sums = append(own, mem), append(sums, sha256.Sum256(mem))
	}

	go v.run(work, own, sums)
	return v, nil
}

// between is the pause between two pieces of work: a victim without pauses would
// leave the attackers no CPU.
const between = 2 * time.Millisecond

func (v *victim) run(work *neighbour.Work, own [][]byte, sums [][32]byte) {
	defer close(v.done)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()

	for n := 0; ; n++ {
		select {
		case <-v.stop:
			return
		case <-time.After(between):
		}

		limit, cancel := context.WithTimeout(ctx, 2*longest)
		start := time.Now()
		err := work.Do(limit)
		took := float64(time.Since(start))
		cancel()
		if i := n % len(own); err == nil && sha256.Sum256(own[i]) != sums[i] {
			err = fmt.Errorf("memory %d of the victim has changed", i)
		}

		v.mu.Lock()
		v.took = append(v.took, took)
		if err != nil {
			v.errors = append(v.errors, err)
		}

		v.mu.Unlock()
		if err != nil && v.session.Err() != nil {
			return // every further one is the same
		}
	}
}

// since returns the results since the last call: how many pieces of work, their
// 99th percentile, and errors.
func (v *victim) since() (n int, p99 float64, errs []error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	n, errs = len(v.took), v.errors
	if n > 0 {
		p99 = paired.Quantiles(v.took, 0.99)[0]
	}
	v.took, v.errors = nil, nil
	return n, p99, errs
}

// close ends it; it must have been alive until then.
func (v *victim) close() error {
	close(v.stop)
	<-v.done
	err := v.session.Err()
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	return errors.Join(err, v.session.Close(ctx))
}
