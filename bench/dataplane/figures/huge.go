package figures

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"capgpu/bench/dataplane/peers"
	"capgpu/bench/dataplane/report"
	"capgpu/bench/dataplane/service"
	"capgpu/client"
)

const (
	hugeBytes = 2 << 20
	// hugeWanted is enough for a buffer of 64 MiB, for memory made in advance, and
	// for memory on its way back to the host.
	hugeWanted = 160
)

// hugeLives is P6 with huge pages, by a service of its own with a policy for them.
// The peer is the same as without.
func hugeLives(ctx context.Context, e *Env) (rows []report.Row, err error) {
	const metric = "buffer of %s, in pages of 2 MiB: create, map, touch, free / by a raw memfd of 4 KiB pages"
	none := func(why error) []report.Row {
		e.Say("P6: NO PAGES OF 2 MiB: %v", why)
		return []report.Row{report.Value("P6", fmt.Sprintf(metric, "16 or 64 MiB")+" (NOT MEASURED: "+why.Error()+")", "", "", 0, "", report.Target{})}
	}

	giveBack, err := setHugeAside(hugeWanted)
	if err != nil {
		return none(err), nil
	}
	defer func() { err = errors.Join(err, giveBack()) }()

	svc, err := service.Start(e.Bin, peers.ServerCPU, service.Options{HugePages: true})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, svc.Close()) }()

	l, err := openLauncher(ctx, svc, 16)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()

	if why, err := hugeInFact(ctx, l.session); err != nil || why != nil {
		return none(why), err
	}

	for _, mebibytes := range []int{16, 64} {
		r, err := lives(ctx, e, l, 0.15, mebibytes, false)
		if err != nil {
			return nil, err
		}
		rows = append(rows, report.Ratio("P6", fmt.Sprintf(metric, fmt.Sprintf("%d MiB", mebibytes)), r, report.AtMost(1.4, 1)))
	}

	return rows, nil
}

// hugeInFact returns why a buffer is not of huge pages; nil: it is.
func hugeInFact(ctx context.Context, s *client.Session) (why, err error) {
	b, err := s.CreateBuffer(ctx, hugeBytes, client.Storage)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, b.Close(ctx)) }()
	fd, _, _ := b.Memory()
	var st unix.Statfs_t
	if err := unix.Fstatfs(fd, &st); err != nil {
		return nil, err
	}
	if st.Type != unix.HUGETLBFS_MAGIC {
		return errors.New("the service has made a buffer of small ones"), nil
	}
	return nil, nil
}

const (
	hugePool = "/proc/sys/vm/nr_hugepages"
	hugeDir  = "/sys/kernel/mm/hugepages/hugepages-2048kB"
)

// setHugeAside makes this many huge pages free on this host, which needs root if
// they are not. The pages are given back afterwards, also when the run is
// interrupted.
func setHugeAside(pages int) (giveBack func() error, err error) {
	free, err := readNumber(filepath.Join(hugeDir, "free_hugepages"))
	if err != nil {
		return nil, fmt.Errorf("the kernel has none: %w", err)
	}
	if free >= pages {
		return func() error { return nil }, nil
	}

	before, err := readNumber(hugePool)
	if err != nil {
		return nil, err
	}

	set := func(n int) error { return os.WriteFile(hugePool, []byte(strconv.Itoa(n)), 0) }
	if err := set(before + pages - free); err != nil {
		return nil, fmt.Errorf("%d are free, and only root may set more aside: %w", free, err)
	}

	interrupted, over := make(chan os.Signal, 1), make(chan struct{})
	signal.Notify(interrupted, unix.SIGINT, unix.SIGTERM)
	go func() {
		select {
		case <-interrupted:
			_ = set(before) // nobody is left to inform
			os.Exit(1)
		case <-over:
		}
	}()

	giveBack = sync.OnceValue(func() error {
		signal.Stop(interrupted)
		close(over)
		return set(before)
	})

	if free, err = readNumber(filepath.Join(hugeDir, "free_hugepages")); err == nil && free < pages {
		err = fmt.Errorf("the host has %d to set aside, not %d", free, pages)
	}
	if err != nil {
		return nil, errors.Join(err, giveBack())
	}

	return giveBack, nil
}

func readNumber(path string) (int, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}
