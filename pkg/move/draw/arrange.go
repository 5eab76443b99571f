package draw

import (
	"cmp"
	"slices"
)

const (
	// orderings is how often rows are ordered by their neighbours, and spreadings how often they are
	// spread after them: more changes little.
	orderings, spreadings = 12, 12
	// straight is how much more a lane weighs than a box: lines through rows bend less.
	straight = 8
)

// arrange orders each row so that few lines cross: by the mean places of the neighbours in the row
// above, then below, and so on; the order with the fewest crossings is kept.
func (s *sheet) arrange() {
	s.walk()
	s.number()
	best, fewest := s.copyRows(), s.crossings()
	for i := range orderings {
		s.sweep(i%2 == 0, s.order)
		if n := s.crossings(); n < fewest {
			best, fewest = s.copyRows(), n
		}
	}
	s.rows = best
	s.number()
}

// walk orders the rows as a walk from the top meets their spots, which leaves trees without crossings.
func (s *sheet) walk() {
	rows := make([][]int, len(s.rows))
	seen := make([]bool, len(s.spots))
	var visit func(int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		rows[s.spots[i].row] = append(rows[s.spots[i].row], i)
		for _, below := range s.spots[i].down {
			visit(below)
		}
	}
	for _, row := range s.rows {
		for _, i := range row {
			if len(s.spots[i].up) == 0 {
				visit(i)
			}
		}
	}
	s.rows = rows
}

// number notes each spot's place in its row.
func (s *sheet) number() {
	for _, row := range s.rows {
		for at, i := range row {
			s.spots[i].order = at
		}
	}
}

func (s *sheet) copyRows() [][]int {
	rows := make([][]int, len(s.rows))
	for i := range s.rows {
		rows[i] = slices.Clone(s.rows[i])
	}
	return rows
}

// sweep calls visit for each row but the first, from the top down, with what returns a spot's neighbours
// in the row above; or, from the bottom up, for each row but the last with what returns those below.
func (s *sheet) sweep(down bool, visit func(row []int, neighbours func(*spot) []int)) {
	if down {
		for _, row := range s.rows[1:] {
			visit(row, func(sp *spot) []int { return sp.up })
		}
		return
	}
	for _, row := range slices.Backward(s.rows[:len(s.rows)-1]) {
		visit(row, func(sp *spot) []int { return sp.down })
	}
}

// order sorts a row by the mean places of its spots' neighbours; a spot without any keeps its own.
func (s *sheet) order(row []int, neighbours func(*spot) []int) {
	for _, i := range row {
		sp := &s.spots[i]
		sp.barycenter = float64(sp.order)
		if near := neighbours(sp); len(near) > 0 {
			sum := 0
			for _, n := range near {
				sum += s.spots[n].order
			}
			sp.barycenter = float64(sum) / float64(len(near))
		}
	}
	slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(s.spots[a].barycenter, s.spots[b].barycenter) })
	for at, i := range row {
		s.spots[i].order = at
	}
}

// crossings counts the pairs of lines that cross, in n log n of lines: those between two rows cross as
// often as their lower ends are out of order, when they are sorted by their upper ends.
func (s *sheet) crossings() int {
	total := 0
	for row := 0; row+1 < len(s.rows); row++ {
		var ends []int
		for _, i := range s.rows[row] {
			below := make([]int, 0, len(s.spots[i].down))
			for _, b := range s.spots[i].down {
				below = append(below, s.spots[b].order)
			}
			slices.Sort(below)
			ends = append(ends, below...)
		}
		counts := make([]int, len(s.rows[row+1])+1) // a Fenwick tree
		for seen, end := range ends {
			before := 0
			for i := end + 1; i > 0; i -= i & -i {
				before += counts[i]
			}
			total += seen - before
			for i := end + 1; i < len(counts); i += i & -i {
				counts[i]++
			}
		}
	}
	return total
}

// spread gives each spot its place in pixels: as near to the middle of its neighbours as the order of
// its row, the widths of the others, and that of the widest row allow.
func (s *sheet) spread() {
	for _, row := range s.rows {
		offsets := s.offsets(row)
		s.width = max(s.width, offsets[len(row)-1]+s.spots[row[len(row)-1]].width()/2)
	}
	for _, row := range s.rows {
		s.settle(row, func(sp *spot) float64 { return 0 })
	}
	for i := range spreadings {
		s.sweep(i%2 == 1, func(row []int, neighbours func(*spot) []int) {
			s.settle(row, func(sp *spot) float64 { return s.middle(sp, neighbours(sp)) })
		})
	}
}

// middle returns the mean place of some spots, or the spot's own if there are none.
func (s *sheet) middle(sp *spot, near []int) float64 {
	if len(near) == 0 {
		return sp.x
	}
	sum := 0.0
	for _, n := range near {
		sum += s.spots[n].x
	}
	return sum / float64(len(near))
}

// settle moves the spots of a row to where they want to be, with the least sum of squared differences
// that keeps their order and distances: an isotonic regression, by pooling adjacent violators.
func (s *sheet) settle(row []int, wanted func(*spot) float64) {
	type pool struct{ sum, weight, count float64 }
	var pools []pool
	offsets := s.offsets(row)
	for at, i := range row {
		sp := &s.spots[i]
		weight := 1.0
		if sp.box < 0 {
			weight = straight
		}
		pools = append(pools, pool{(wanted(sp) - offsets[at]) * weight, weight, 1})
		for len(pools) > 1 {
			last, previous := pools[len(pools)-1], &pools[len(pools)-2]
			if previous.sum/previous.weight <= last.sum/last.weight {
				break
			}
			previous.sum += last.sum
			previous.weight += last.weight
			previous.count += last.count
			pools = pools[:len(pools)-1]
		}
	}
	// The left edge is 0; what the widest row leaves free is how far the others may be off it.
	free := s.width - offsets[len(row)-1] - s.spots[row[len(row)-1]].width()/2
	at := 0
	for _, p := range pools {
		x := min(max(p.sum/p.weight, 0), free)
		for range int(p.count) {
			s.spots[row[at]].x = x + offsets[at]
			at++
		}
	}
}

// offsets returns how far to the right the spots of a row are at least.
func (s *sheet) offsets(row []int) []float64 {
	offsets := make([]float64, len(row))
	offsets[0] = s.spots[row[0]].width() / 2
	for at := 1; at < len(row); at++ {
		sp, before := &s.spots[row[at]], &s.spots[row[at-1]]
		space := float64(gap)
		if sp.box < 0 || before.box < 0 {
			space = laneGap
		}
		offsets[at] = offsets[at-1] + (before.width()+sp.width())/2 + space
	}
	return offsets
}
