package draw

import (
	"cmp"
	"math"
	"slices"
)

// Sizes in pixels.
const (
	boxWidth, boxHeight = 212, 62
	// stack is the part of a box that shows the second of a stack; the lines of one object begin there.
	stack = 6
	// gap is between boxes of a row, and rowGap between rows, where the lines bend.
	gap, rowGap = 20, 58
	// laneWidth is what a line takes that passes through a row.
	laneWidth, laneGap = 4, 12
	margin             = 24
)

// layout says where boxes and lines are, in pixels from the top left.
type layout struct {
	width, height int
	boxes         []place
	lines         []line
	// apart is where the boxes begin that have no lines, or 0.
	apart int
}

// place is the top left corner of a box.
type place struct{ x, y int }

// line is a part of an arrow: from the bottom of a box or lane to the top of another.
type line struct {
	from, to place
	// through is the lower end of the lane that the line goes on through; the same as to where it ends.
	through place
	// head says that it ends at what is owned, and tail that it begins there, as owners are below.
	head, tail bool
	soft, ring bool
}

// spot is a place in a row: a box, or a lane of lines that pass.
type spot struct {
	box        int // -1 is a lane
	row        int
	x          float64 // of the middle
	up, down   []int   // spots of the rows above and below that lines lead to
	order      int     // in its row
	barycenter float64
}

func (s *spot) width() float64 {
	if s.box < 0 {
		return laneWidth
	}
	return boxWidth
}

// layOut places boxes in rows, owners above what they own, so that rows stay short and few lines cross.
// What is linked is placed together, the largest part first; boxes without lines come below.
func layOut(d *drawing) *layout {
	parts, alone := d.parts()
	capacity := max(7, int(math.Ceil(math.Sqrt(float64(len(d.boxes))))))
	if len(d.boxes) > readable {
		capacity *= 2 // for a screen it is too large all the same, and longer rows have fewer lines between them
	}
	l := &layout{boxes: make([]place, len(d.boxes)), width: 2 * margin, height: margin}
	// Parts are side by side. Below them the next begin, where the width is used up.
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
	if len(alone) == 0 {
		return l
	}
	l.apart = l.height
	columns := max(capacity, (l.width-2*margin+gap)/(boxWidth+gap))
	for n, b := range alone {
		l.boxes[b] = place{margin + n%columns*(boxWidth+gap), l.apart + margin + n/columns*(boxHeight+gap)}
		l.width = max(l.width, l.boxes[b].x+boxWidth+margin)
		l.height = max(l.height, l.boxes[b].y+boxHeight+margin)
	}
	return l
}

// part is boxes that lines link with each other.
type part struct {
	boxes []int
	// arrows are those between the boxes, by their places in the part.
	arrows []arrow
}

// parts returns the parts of a drawing, those with the most boxes first, and the boxes without lines.
func (d *drawing) parts() (parts []part, alone []int) {
	near := make([][]int, len(d.boxes)) // boxes
	for _, a := range d.arrows {
		near[a.from] = append(near[a.from], a.to)
		near[a.to] = append(near[a.to], a.from)
	}
	of, at := make([]int, len(d.boxes)), make([]int, len(d.boxes)) // each box's part, from 1, and its place there
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
			alone = append(alone, b)
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
	return parts, alone
}

// sheet is the layout of a part in the making.
type sheet struct {
	part
	// turned says of each arrow that it leads upwards, as it closes a cycle.
	turned []bool
	// capacity is how many boxes a row has at most.
	capacity int
	spots    []spot // the boxes first, by their numbers
	rows     [][]int
	strokes  []stroke
	// width is that of the widest row, in pixels.
	width float64
}

// stroke is a line between spots of neighbouring rows.
type stroke struct {
	from, to   int
	head, tail bool
	soft, ring bool
}

func newSheet(part part, capacity int) *sheet {
	s := &sheet{part: part, turned: make([]bool, len(part.arrows)), spots: make([]spot, len(part.boxes)), capacity: capacity}
	for i := range s.spots {
		s.spots[i].box = i
	}
	return s
}

// ends returns the boxes of an arrow, the upper one first.
func (s *sheet) ends(i int) (int, int) {
	if s.turned[i] {
		return s.arrows[i].to, s.arrows[i].from
	}
	return s.arrows[i].from, s.arrows[i].to
}

// turnCycles turns the arrows that close a cycle, as a walk from the top meets them.
func (s *sheet) turnCycles() {
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
				s.turned[i] = true
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

// setRows puts each box below all of its owners, and further down where a row is full. Boxes come in
// the order of a walk from the top, so that those of an owner stay together.
func (s *sheet) setRows() {
	s.turnCycles()
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
		row := s.spots[b].row
		for row < len(s.rows) && len(s.rows[row]) >= s.capacity {
			row++
		}
		for row >= len(s.rows) {
			s.rows = append(s.rows, nil)
		}
		s.spots[b].row = row
		s.rows[row] = append(s.rows[row], b)
		for _, to := range out[b] {
			s.spots[to].row = max(s.spots[to].row, row+1)
			if missing[to]--; missing[to] == 0 {
				queue = append(queue, to)
			}
		}
	}
}

// addLanes leads the arrows of a box that end further down than in the next row through the rows
// between, on one lane for all arrows of a style.
func (s *sheet) addLanes() {
	type trunk struct {
		top                int
		soft, ring, turned bool
	}
	byRow := make([]int, len(s.arrows))
	for i := range byRow {
		byRow[i] = i
	}
	slices.SortStableFunc(byRow, func(a, b int) int {
		_, x := s.ends(a)
		_, y := s.ends(b)
		return cmp.Compare(s.spots[x].row, s.spots[y].row)
	})
	lowest := map[trunk]int{} // the lowest spot of each trunk so far
	for _, i := range byRow {
		from, to := s.ends(i)
		a := s.arrows[i]
		t := trunk{top: from, soft: a.soft, ring: a.ring, turned: s.turned[i]}
		at, ok := lowest[t]
		if !ok {
			at = from
		}
		for row := s.spots[at].row + 1; row < s.spots[to].row; row++ {
			lane := len(s.spots)
			s.spots = append(s.spots, spot{box: -1, row: row})
			s.rows[row] = append(s.rows[row], lane)
			s.connect(stroke{from: at, to: lane, soft: a.soft, ring: a.ring, tail: s.turned[i] && at == from})
			at = lane
		}
		lowest[t] = at
		s.connect(stroke{from: at, to: to, soft: a.soft, ring: a.ring, head: !s.turned[i], tail: s.turned[i] && at == from})
	}
}

func (s *sheet) connect(st stroke) {
	s.strokes = append(s.strokes, st)
	s.spots[st.from].down = append(s.spots[st.from].down, st.to)
	s.spots[st.to].up = append(s.spots[st.to].up, st.from)
}

// draw adds the part to a layout, with its top left at a place, in whole pixels.
func (s *sheet) draw(l *layout, x, y int) {
	middle := func(i int) int { return int(math.Round(s.spots[i].x)) + x }
	top := func(i int) int { return y + s.spots[i].row*(boxHeight+rowGap) }
	for i, b := range s.boxes {
		l.boxes[b] = place{middle(i) - boxWidth/2, top(i)}
	}
	for _, st := range s.strokes {
		ln := line{
			from: place{middle(st.from), top(st.from) + boxHeight}, to: place{middle(st.to), top(st.to)},
			head: st.head, tail: st.tail, soft: st.soft, ring: st.ring,
		}
		if s.spots[st.from].box >= 0 {
			ln.from.y -= stack
		}
		ln.through = ln.to
		if s.spots[st.to].box < 0 {
			ln.through.y += boxHeight
		}
		l.lines = append(l.lines, ln)
	}
}
