package main

import (
	"fmt"
	"slices"
	"strings"
)

// Widths of the ledger's columns.
const (
	orderWidth = 12
	sideWidth  = 42
)

// instalmentEUR is what the API takes for an instalment.
const instalmentEUR = 100

// printLedger prints side by side what two APIs were made to do, in the order in which
// it took effect, and what each was left with.
func printLedger(s *stage, fenced, bare []visit) {
	widths := []int{2, orderWidth, sideWidth, 0}
	s.text("", plain)
	s.text("What each API was made to do, in the order in which it took effect", loud)
	s.line([]cell{{"  ", plain}, {"", plain}, {"with fenceproxy", loud}, {"without", loud}}, widths)
	for _, order := range orders(bare) {
		left, right := ledger(fenced, order), ledger(bare, order)
		for i := range max(len(left), len(right)) {
			name := cell{}
			if i == 0 {
				name.text = order
			}
			s.line([]cell{{"  ", plain}, name, at(left, i), at(right, i)}, widths)
		}
	}
	s.line([]cell{{"  ", plain}, {"in the end", loud}, {balance(fenced), loud}, {balance(bare), loud}}, widths)
	s.text("", plain)
}

// orders lists the orders in the order of their first visit.
func orders(visits []visit) []string {
	var out []string
	for _, v := range visits {
		if !slices.Contains(out, v.order) {
			out = append(out, v.order)
		}
	}
	return out
}

// effects sorts visits by when they took effect.
func effects(visits []visit) []visit {
	out := slices.Clone(visits)
	slices.SortStableFunc(out, func(a, b visit) int { return a.left.Compare(b.left) })
	return out
}

// ledger says what became of an order, a line for each visit, and marks the harm.
func ledger(visits []visit, order string) []cell {
	var out []cell
	var done []visit
	for _, v := range effects(visits) {
		if v.order != order {
			continue
		}
		line := cell{text: fmt.Sprintf("%s  %s", v.worker, v.what)}
		harm := ""
		if v.state == visitDone {
			harm = harmOf(v, done)
			done = append(done, v)
		} else {
			line.text += ", " + string(v.state)
		}
		if harm != "" {
			line.text += ", " + harm
			line.tone = bad
		}
		out = append(out, line)
	}
	return out
}

// harmOf names what is wrong with a visit after those that were done before.
func harmOf(v visit, before []visit) string {
	for _, b := range slices.Backward(before) {
		switch {
		case kind(v) == "instalment" && b.what == v.what:
			return "charged again"
		// The story's workers are named in the order of their generations.
		case kind(v) != "instalment" && kind(b) == kind(v) && b.worker > v.worker:
			return "overwrites " + b.worker + "'s"
		}
	}
	return ""
}

// kind is the first word of what was written.
func kind(v visit) string {
	k, _, _ := strings.Cut(v.what, " ")
	return k
}

// balance is the state in which an API was left.
func balance(visits []visit) string {
	eur, status, statement := 0, "none", "none"
	for _, v := range effects(visits) {
		if v.state != visitDone {
			continue
		}
		switch kind(v) {
		case "instalment":
			eur += instalmentEUR
		case "status":
			status = strings.TrimPrefix(v.what, "status ")
		case "statement":
			statement = v.worker + "'s"
		}
	}
	return fmt.Sprintf("%d of %d EUR, %s, statement %s", eur, 2*instalmentEUR, status, statement)
}

func at(cells []cell, i int) cell {
	if i < len(cells) {
		return cells[i]
	}
	return blank
}
