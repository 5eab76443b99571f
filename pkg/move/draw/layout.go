package draw

import (
	"cmp"
	"math"
	"slices"
)

// Sizes in pixels.
const (
	boxWidth, boxHeight = 212, 62
	// stack is how far the second box of a stack protrudes. Lines begin that much above the end of a box.
	stack = 6
	// gap separates the boxes of a row, and rowGap the rows. Lines bend between rows.
	gap, rowGap = 20, 58
	// laneWidth is the width of a line that passes through a row.
	laneWidth, laneGap = 4, 12
	margin             = 24
)

// layout says where boxes and lines are, in pixels from the top left.
type layout struct {
	width, height int
	boxes         []place
	lines         []line
	// isolated is where the boxes without lines begin, or 0.
	isolated int
}

// place is the top left corner of a box.
type place struct{ x, y int }

// line is a part of an arrow: from the bottom of a box or lane to the top of another.
type line struct {
	from, to place
	// through is the lower end of the lane in which the line continues, or to if the line ends there.
	through place
	// head and tail say that the owned object is at the end, or at the beginning, where the owner is below.
	head, tail bool
	soft, ring bool
}

// node is an item of a row: a box, or a lane for lines that pass through the row.
type node struct {
	box        int // -1 for a lane
	row        int
	x          float64 // of its middle
	up, down   []int   // neighbours in the rows above and below
	order      int     // index in its row
	barycenter float64
}

func (n *node) width() float64 {
	if n.box < 0 {
		return laneWidth
	}
	return boxWidth
}

// layOut places boxes in rows, owners above the objects they own, so that rows stay short and few lines cross. Linked
// boxes are a part of the drawing; the largest part comes first, and boxes without lines come last.
func layOut(d *drawing) *layout {
	parts, isolated := d.parts()
	capacity := max(7, int(math.Ceil(math.Sqrt(float64(len(d.boxes))))))
	if len(d.boxes) > readable {
		capacity *= 2 // it does not fit a screen in any case, and longer rows have fewer lines between them
	}
	l := &layout{boxes: make([]place, len(d.boxes)), width: 2 * margin, height: margin}
	// Parts are side by side as long as the width allows; the next ones begin below.
	x, below := margin, l.height
	for _, part := range parts {
		s := newSheet(part, capacity)
		s.setRows()
		s.addLanes()
		s.arrange()
		s.spread()
		width := int(math.Ceil(s.width))
		if x > margin && x+width > capacity*(boxWidth+gap) {
			x, l.height = margin, below
		}
		s.draw(l, x, l.height)
		l.width = max(l.width, x+width+margin)
		x += width + 2*gap
		below = max(below, l.height+len(s.rows)*(boxHeight+rowGap))
	}
	l.height = below
	if len(isolated) == 0 {
		return l
	}
	l.isolated = l.height
	columns := max(capacity, (l.width-2*margin+gap)/(boxWidth+gap))
	for n, b := range isolated {
		l.boxes[b] = place{margin + n%columns*(boxWidth+gap), l.isolated + margin + n/columns*(boxHeight+gap)}
		l.width = max(l.width, l.boxes[b].x+boxWidth+margin)
		l.height = max(l.height, l.boxes[b].y+boxHeight+margin)
	}
	return l
}

// part is a connected component of a drawing.
type part struct {
	boxes []int
	// arrows link the boxes, by their indices in the part.
	arrows []arrow
}

// parts returns the parts of a drawing, those with the most boxes first, and the boxes without lines.
func (d *drawing) parts() (parts []part, isolated []int) {
	near := make([][]int, len(d.boxes)) // boxes
	for _, a := range d.arrows {
		near[a.from] = append(near[a.from], a.to)
		near[a.to] = append(near[a.to], a.from)
	}
	of, at := make([]int, len(d.boxes)), make([]int, len(d.boxes)) // each box's part, from 1, and its index in it
	var visit func(b, number int)
	visit = func(b, number int) {
		of[b] = number
		for _, n := range near[b] {
			if of[n] == 0 {
				visit(n, number)
			}
		}
	}
	for b := range d.boxes {
		if len(near[b]) == 0 {
			isolated = append(isolated, b)
			continue
		}
		if of[b] == 0 {
			parts = append(parts, part{})
			visit(b, len(parts))
		}
		p := &parts[of[b]-1]
		at[b] = len(p.boxes)
		p.boxes = append(p.boxes, b)
	}
	for _, a := range d.arrows {
		p := &parts[of[a.from]-1]
		a.from, a.to = at[a.from], at[a.to]
		p.arrows = append(p.arrows, a)
	}
	slices.SortStableFunc(parts, func(a, b part) int { return len(b.boxes) - len(a.boxes) })
	return parts, isolated
}

// sheet is the layout of a part while it is computed.
type sheet struct {
	part
	// reversed says of each arrow whether it points upwards, because it closes a cycle.
	reversed []bool
	// capacity is the maximum number of boxes in a row.
	capacity int
	nodes    []node // the boxes first, by their indices
	rows     [][]int
	edges    []edge
	// width is the width of the widest row, in pixels.
	width float64
}

// edge links two nodes of adjacent rows.
type edge struct {
	from, to   int
	head, tail bool
	soft, ring bool
}

func newSheet(part part, capacity int) *sheet {
	s := &sheet{part: part, reversed: make([]bool, len(part.arrows)), nodes: make([]node, len(part.boxes)), capacity: capacity}
	for i := range s.nodes {
		s.nodes[i].box = i
	}
	return s
}

// ends returns the boxes of an arrow, the upper one first.
func (s *sheet) ends(i int) (int, int) {
	if s.reversed[i] {
		return s.arrows[i].to, s.arrows[i].from
	}
	return s.arrows[i].from, s.arrows[i].to
}

// reverseCycles reverses the arrows that close a cycle in a depth-first walk from the top.
func (s *sheet) reverseCycles() {
	out := make([][]int, len(s.boxes))
	owned := make([]bool, len(s.boxes))
	for i, a := range s.arrows {
		out[a.from] = append(out[a.from], i)
		owned[a.to] = true
	}
	const open, done = 1, 2
	state := make([]int, len(s.boxes))
	var visit func(int)
	visit = func(b int) {
		state[b] = open
		for _, i := range out[b] {
			switch to := s.arrows[i].to; state[to] {
			case open:
				s.reversed[i] = true
			case 0:
				visit(to)
			}
		}
		state[b] = done
	}
	for _, tops := range []bool{true, false} {
		for b := range s.boxes {
			if state[b] == 0 && owned[b] != tops {
				visit(b)
			}
		}
	}
}

// setRows puts each box below all its owners, or further down if that row is full. Boxes are placed in breadth-first
// order, so that the boxes of an owner stay together.
func (s *sheet) setRows() {
	s.reverseCycles()
	out := make([][]int, len(s.boxes))
	missing := make([]int, len(s.boxes))
	for i := range s.arrows {
		from, to := s.ends(i)
		out[from] = append(out[from], to)
		missing[to]++
	}
	var queue []int
	for b := range s.boxes {
		if missing[b] == 0 {
			queue = append(queue, b)
		}
	}
	for len(queue) > 0 {
		b := queue[0]
		queue = queue[1:]
		row := s.nodes[b].row
		for row < len(s.rows) && len(s.rows[row]) >= s.capacity {
			row++
		}
		for row >= len(s.rows) {
			s.rows = append(s.rows, nil)
		}
		s.nodes[b].row = row
		s.rows[row] = append(s.rows[row], b)
		for _, to := range out[b] {
			s.nodes[to].row = max(s.nodes[to].row, row+1)
			if missing[to]--; missing[to] == 0 {
				queue = append(queue, to)
			}
		}
	}
}

// addLanes adds lanes for the arrows that end below the next row. Arrows of the same style from the same box share
// their lanes.
func (s *sheet) addLanes() {
	type trunk struct {
		top                  int
		soft, ring, reversed bool
	}
	byRow := make([]int, len(s.arrows))
	for i := range byRow {
		byRow[i] = i
	}
	slices.SortStableFunc(byRow, func(a, b int) int {
		_, x := s.ends(a)
		_, y := s.ends(b)
		return cmp.Compare(s.nodes[x].row, s.nodes[y].row)
	})
	lowest := map[trunk]int{} // the lowest node of each trunk
	for _, i := range byRow {
		from, to := s.ends(i)
		a := s.arrows[i]
		t := trunk{top: from, soft: a.soft, ring: a.ring, reversed: s.reversed[i]}
		at, ok := lowest[t]
		if !ok {
			at = from
		}
		for row := s.nodes[at].row + 1; row < s.nodes[to].row; row++ {
			lane := len(s.nodes)
			s.nodes = append(s.nodes, node{box: -1, row: row})
			s.rows[row] = append(s.rows[row], lane)
			s.connect(edge{from: at, to: lane, soft: a.soft, ring: a.ring, tail: s.reversed[i] && at == from})
			at = lane
		}
		lowest[t] = at
		s.connect(edge{from: at, to: to, soft: a.soft, ring: a.ring, head: !s.reversed[i], tail: s.reversed[i] && at == from})
	}
}

func (s *sheet) connect(st edge) {
	s.edges = append(s.edges, st)
	s.nodes[st.from].down = append(s.nodes[st.from].down, st.to)
	s.nodes[st.to].up = append(s.nodes[st.to].up, st.from)
}

// draw adds the part to a layout, with its top left corner at the given pixel.
func (s *sheet) draw(l *layout, x, y int) {
	middle := func(i int) int { return int(math.Round(s.nodes[i].x)) + x }
	top := func(i int) int { return y + s.nodes[i].row*(boxHeight+rowGap) }
	for i, b := range s.boxes {
		l.boxes[b] = place{middle(i) - boxWidth/2, top(i)}
	}
	for _, st := range s.edges {
		ln := line{
			from: place{middle(st.from), top(st.from) + boxHeight}, to: place{middle(st.to), top(st.to)},
			head: st.head, tail: st.tail, soft: st.soft, ring: st.ring,
		}
		if s.nodes[st.from].box >= 0 {
			ln.from.y -= stack
		}
		ln.through = ln.to
		if s.nodes[st.to].box < 0 {
			ln.through.y += boxHeight
		}
		l.lines = append(l.lines, ln)
	}
}
