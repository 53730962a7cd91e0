// Package docs holds the pages for users, and the tests that keep them true: their commands are run, and their tables
// are compared with the program.
package docs
