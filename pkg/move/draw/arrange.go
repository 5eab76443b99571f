package draw

import (
	"cmp"
	"slices"
)

const (
	// orderings is the number of sweeps that order rows, and spreadings the number of sweeps that set
	// places. More sweeps change little.
	orderings, spreadings = 12, 12
	// straight is the weight of a lane, compared with a box: lines through several rows stay straight.
	straight = 8
)

// arrange orders each row so that few lines cross: by the mean places of the neighbours in the row above, then in the
// row below, and so on. It keeps the order with the fewest crossings.
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

// walk orders the nodes of each row as a depth-first walk from the top visits them. A tree has no crossings then.
func (s *sheet) walk() {
	rows := make([][]int, len(s.rows))
	seen := make([]bool, len(s.nodes))
	var visit func(int)
	visit = func(i int) {
		if seen[i] {
			return
		}
		seen[i] = true
		rows[s.nodes[i].row] = append(rows[s.nodes[i].row], i)
		for _, below := range s.nodes[i].down {
			visit(below)
		}
	}
	for _, row := range s.rows {
		for _, i := range row {
			if len(s.nodes[i].up) == 0 {
				visit(i)
			}
		}
	}
	s.rows = rows
}

// number sets each node's index in its row.
func (s *sheet) number() {
	for _, row := range s.rows {
		for at, i := range row {
			s.nodes[i].order = at
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

// sweep calls visit for each row except the first, from the top down, with a function that returns a node's neighbours
// in the row above; or for each row except the last, from the bottom up, with the neighbours in the row below.
func (s *sheet) sweep(down bool, visit func(row []int, neighbours func(*node) []int)) {
	if down {
		for _, row := range s.rows[1:] {
			visit(row, func(n *node) []int { return n.up })
		}
		return
	}
	for _, row := range slices.Backward(s.rows[:len(s.rows)-1]) {
		visit(row, func(n *node) []int { return n.down })
	}
}

// order sorts a row by the mean places of its nodes' neighbours. A node without neighbours counts with its own place.
func (s *sheet) order(row []int, neighbours func(*node) []int) {
	for _, i := range row {
		n := &s.nodes[i]
		n.barycenter = float64(n.order)
		if near := neighbours(n); len(near) > 0 {
			sum := 0
			for _, j := range near {
				sum += s.nodes[j].order
			}
			n.barycenter = float64(sum) / float64(len(near))
		}
	}
	slices.SortStableFunc(row, func(a, b int) int { return cmp.Compare(s.nodes[a].barycenter, s.nodes[b].barycenter) })
	for at, i := range row {
		s.nodes[i].order = at
	}
}

// crossings counts the pairs of lines that cross, in O(n log n) for n lines. Between two rows these are the inversions
// of the lower ends when the lines are sorted by their upper ends.
func (s *sheet) crossings() int {
	total := 0
	for row := 0; row+1 < len(s.rows); row++ {
		var ends []int
		for _, i := range s.rows[row] {
			below := make([]int, 0, len(s.nodes[i].down))
			for _, b := range s.nodes[i].down {
				below = append(below, s.nodes[b].order)
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

// spread sets the place of each node in pixels: as near to the mean of its neighbours as the order and the widths in
// its row and the width of the widest row allow.
func (s *sheet) spread() {
	for _, row := range s.rows {
		offsets := s.offsets(row)
		s.width = max(s.width, offsets[len(row)-1]+s.nodes[row[len(row)-1]].width()/2)
	}
	for _, row := range s.rows {
		s.settle(row, func(n *node) float64 { return 0 })
	}
	for i := range spreadings {
		s.sweep(i%2 == 1, func(row []int, neighbours func(*node) []int) {
			s.settle(row, func(n *node) float64 { return s.middle(n, neighbours(n)) })
		})
	}
}

// middle returns the mean place of the nodes in near, or n's own place if there are none.
func (s *sheet) middle(n *node, near []int) float64 {
	if len(near) == 0 {
		return n.x
	}
	sum := 0.0
	for _, i := range near {
		sum += s.nodes[i].x
	}
	return sum / float64(len(near))
}

// settle moves the nodes of a row to the wanted places, with the least sum of squared differences that keeps their
// order and distances. This is isotonic regression by the pool-adjacent-violators algorithm.
func (s *sheet) settle(row []int, wanted func(*node) float64) {
	type pool struct{ sum, weight, count float64 }
	var pools []pool
	offsets := s.offsets(row)
	for at, i := range row {
		n := &s.nodes[i]
		weight := 1.0
		if n.box < 0 {
			weight = straight
		}
		pools = append(pools, pool{(wanted(n) - offsets[at]) * weight, weight, 1})
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
	// Rows begin at 0 or further right, and end within the width of the widest row.
	free := s.width - offsets[len(row)-1] - s.nodes[row[len(row)-1]].width()/2
	at := 0
	for _, p := range pools {
		x := min(max(p.sum/p.weight, 0), free)
		for range int(p.count) {
			s.nodes[row[at]].x = x + offsets[at]
			at++
		}
	}
}

// offsets returns the leftmost possible places of the nodes of a row.
func (s *sheet) offsets(row []int) []float64 {
	offsets := make([]float64, len(row))
	offsets[0] = s.nodes[row[0]].width() / 2
	for at := 1; at < len(row); at++ {
		n, before := &s.nodes[row[at]], &s.nodes[row[at-1]]
		space := float64(gap)
		if n.box < 0 || before.box < 0 {
			space = laneGap
		}
		offsets[at] = offsets[at-1] + (before.width()+n.width())/2 + space
	}
	return offsets
}
