package program

// MaxGrid is the most workgroups of a launch in one dimension.
const MaxGrid = 65535

// NaturalGrid returns a launch that suits bindings of these sizes, by index, as the
// manifest's Grid says. The grid has one dimension and at most MaxGrid workgroups.
// It is a proposal: a program that can be launched at all is also right on another
// grid. A binding without a size here counts as empty.
func (i *Info) NaturalGrid(bindingBytes []uint64) (grid, block Dim3) {
	one := Dim3{1, 1, 1}
	block = i.Block
	if i.Grid.Groups > 0 {
		return Dim3{min(i.Grid.Groups, MaxGrid), 1, 1}, block
	}

	cover, found := i.coverBytes(bindingBytes)
	if !found {
		return one, block
	}

	elementBytes := uint64(max(i.Grid.ElementBytes, 1))
	if i.Grid.ElementBytes == 0 {
		elementBytes = 4
	}

	perGroup := uint64(i.Grid.PerGroup)
	if perGroup == 0 {
		perGroup = max(block.Count(), 1)
	}

	elements := cover / elementBytes
	groups := elements / perGroup
	if elements%perGroup != 0 {
		groups++
	}

	return Dim3{uint32(min(max(groups, 1), MaxGrid)), 1, 1}, block
}

// coverBytes is the size of the binding that the grid covers.
func (i *Info) coverBytes(bindingBytes []uint64) (cover uint64, found bool) {
	for at, b := range i.Bindings {
		var size uint64
		if at < len(bindingBytes) {
			size = bindingBytes[at]
		}
		switch {
		case i.Grid.Cover == b.Name:
			return size, true
		case i.Grid.Cover == "" && (!found || size < cover):
			cover, found = size, true
		}
	}
	return cover, found
}
