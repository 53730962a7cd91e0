// Package walls holds the import test: who may import whom. The table that it checks stands in
// DESIGN.md, so that a wall can not be moved without saying so there.
package walls
