// Package bytesize writes amounts of bytes that are compared with each other, in one unit.
package bytesize

import (
	"math"
	"slices"
	"strconv"
)

// Unit is a unit of bytes. The zero value is not a unit: UnitFor returns one.
type Unit struct {
	name  string
	bytes int64
}

var units = []Unit{{"B", 1}, {"Ki", 1 << 10}, {"Mi", 1 << 20}, {"Gi", 1 << 30}, {"Ti", 1 << 40}}

// UnitFor returns the unit for some amounts: the largest one that isn't larger than any amount except 0, or a larger
// one if the largest amount would have more than five digits.
func UnitFor(amounts ...int64) Unit {
	const most = 99_999
	amounts = slices.DeleteFunc(slices.Clone(amounts), func(amount int64) bool { return amount <= 0 })
	chosen := units[0]
	if len(amounts) == 0 {
		return chosen
	}
	for _, unit := range units[1:] {
		if slices.Min(amounts) >= unit.bytes || slices.Max(amounts)/chosen.bytes > most {
			chosen = unit
		}
	}
	return chosen
}

// Up writes an amount in the unit, rounded up to two decimals, for needed or used amounts.
func (u Unit) Up(bytes int64) string { return u.format(bytes, math.Ceil) }

// Down writes an amount in the unit, rounded down to two decimals, for available or completed amounts.
func (u Unit) Down(bytes int64) string { return u.format(bytes, math.Floor) }

func (u Unit) format(bytes int64, round func(float64) float64) string {
	if bytes == 0 {
		return "0"
	}
	return strconv.FormatFloat(round(100*float64(bytes)/float64(u.bytes))/100, 'f', -1, 64) + u.name
}
