// Package model holds a model of the fence in Promela, fence.pml, and the test that has spin check it exhaustively.
package model
