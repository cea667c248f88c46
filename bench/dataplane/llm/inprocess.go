package llm

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"capgpu/client"
	"capgpu/model"
	"capgpu/model/llama"
	"capgpu/program"
	"capgpu/program/library"
	"capgpu/program/native"
)

// InProcess runs a model's launches as calls of the native kernels, one after
// another in the calling thread, on memory of this process: no service, no checks,
// nothing shared. Each call was prepared once, as a list is when it is recorded.
type InProcess struct {
	blueprint *llama.Blueprint
	vocab     int
	buffers   [][]byte
	bodies    map[int][]call // by rows
	heads     map[int][]call
	next      []call // of one row

	// The inputs and outputs of a pass, in the launches' memory.
	tokens, rows, history []uint32
	logits                []float32
}

// call is one launch.
type call struct {
	program string
	body    *native.Body
	native.Call
	items uint64
}

// NewInProcess puts a model into memory, for passes of 1 row and of the given
// batches. Its sequences have all positions that the options allow; the options
// must set Sequences and Batch. The caller closes it.
func NewInProcess(f *model.File, o llama.Options, batches ...int) (_ *InProcess, err error) {
	if o.Batch < 1 {
		return nil, errors.New("batch: none was given")
	}

	b, err := llama.Draw(f, o, 0)
	if err != nil {
		return nil, err
	}

	p := &InProcess{blueprint: b, vocab: f.Config.Vocab, bodies: map[int][]call{}, heads: map[int][]call{}}
	defer func() {
		if err != nil {
			err = errors.Join(err, p.Close())
		}
	}()

	for i := range b.Buffers {
		memory, err := unix.Mmap(-1, 0, int(b.Buffers[i].Bytes), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
		if err != nil {
			return nil, fmt.Errorf("memory of %d bytes: %w", b.Buffers[i].Bytes, err)
		}
		p.buffers = append(p.buffers, memory)
		if err := b.Fill(i, memory); err != nil {
			return nil, err
		}
	}

	for _, n := range append([]int{1}, batches...) {
		if p.bodies[n], err = p.ready(b.Body(n)); err != nil {
			return nil, err
		}
		if p.heads[n], err = p.ready(b.Head(n)); err != nil {
			return nil, err
		}
	}

	if p.next, err = p.ready(b.Next(1)); err != nil {
		return nil, err
	}

	return p, p.find(o.Batch)
}

// find finds the inputs and outputs of a pass in the launches.
func (p *InProcess) find(batch int) error {
	next := p.blueprint.Next(batch)[0].Bindings // next_token_f32
	if len(next) != 4 {
		return fmt.Errorf("next_token_f32 has %d bindings, not 4", len(next))
	}

	p.logits = client.View[float32](p.memory(next[0]))
	p.tokens, p.rows, p.history = client.View[uint32](p.memory(next[1])), client.View[uint32](p.memory(next[2])), client.View[uint32](p.memory(next[3]))
	p.history = p.history[:len(p.history)/batch]
	for _, l := range p.blueprint.Body(1) {
		if l.Program == "rope_cache_f32" {
			table := client.View[uint32](p.memory(l.Bindings[3]))
			for i := range table {
				table[i] = uint32(i) // every sequence has its pages from the beginning on
			}
			return nil
		}
	}

	return errors.New("no launch has a table of pages")
}

func (p *InProcess) memory(b llama.Binding) []byte {
	return p.buffers[b.Buffer][b.Off : b.Off+b.Bytes : b.Off+b.Bytes]
}

var one = program.Dim3{X: 1, Y: 1, Z: 1}

// ready converts launches to calls.
func (p *InProcess) ready(launches []llama.Launch) (calls []call, err error) {
	for _, l := range launches {
		digest, known := library.Digest(l.Program)
		if !known {
			return nil, fmt.Errorf("%s is not in the library", l.Program)
		}

		body, ok := native.Lookup(digest)
		if !ok {
			return nil, fmt.Errorf("%s has no fast body", l.Program)
		}

		c := call{program: l.Program, body: body, Call: native.Call{Grid: one, Block: one, Inline: l.Inline}}
		for _, b := range l.Bindings {
			c.Bindings = append(c.Bindings, p.memory(b))
		}

		if c.items, ok = body.Items(&c.Call); !ok {
			return nil, fmt.Errorf("the fast body of %s does not do its launch", l.Program)
		}

		calls = append(calls, c)
	}
	return calls, nil
}

// run does calls one after another.
func run(calls []call) error {
	for i := range calls {
		if c := &calls[i]; !c.body.Run(&c.Call, 0, c.items) {
			return fmt.Errorf("the fast body of %s gave up", c.program)
		}
	}
	return nil
}

// Greedy begins a text with a token and fills out with the next ones. As on the
// device, next_token_f32 sets the token and the position of the next pass.
func (p *InProcess) Greedy(token int32, out []int32) error {
	p.lay(0, Row{Token: token})
	for at := range out {
		for _, part := range [][]call{p.bodies[1], p.heads[1], p.next} {
			if err := run(part); err != nil {
				return err
			}
		}
		out[at] = int32(p.history[at%len(p.history)])
	}
	return nil
}

// Row is a token at a position of a sequence.
type Row struct {
	Sequence, Position int
	Token              int32
	Logits             bool
}

func (p *InProcess) lay(i int, r Row) {
	p.tokens[i], p.rows[2*i], p.rows[2*i+1] = uint32(r.Token), uint32(r.Position), uint32(r.Sequence)
}

// Step is one pass of a batch size given to NewInProcess; the number of rows that
// want logits must be one, too. As in package llama those rows come first.
func (p *InProcess) Step(rows []Row) error {
	logits := 0
	for _, r := range rows {
		if r.Logits {
			logits++
		}
	}

	at, rest := 0, logits
	for _, r := range rows {
		to := &rest
		if r.Logits {
			to = &at
		}
		p.lay(*to, r)
		*to++
	}

	if p.bodies[len(rows)] == nil || logits > 0 && p.heads[logits] == nil {
		return fmt.Errorf("no passes of %d rows, %d with logits, were made ready", len(rows), logits)
	}
	if err := run(p.bodies[len(rows)]); err != nil || logits == 0 {
		return err
	}

	return run(p.heads[logits])
}

// Logits are those of row i of the last pass, until the next.
func (p *InProcess) Logits(i int) []float32 { return p.logits[i*p.vocab : (i+1)*p.vocab] }

// Close frees the memory.
func (p *InProcess) Close() (err error) {
	for _, memory := range p.buffers {
		err = errors.Join(err, unix.Munmap(memory))
	}
	p.buffers = nil
	return err
}
