// Package lint is a test that holds the house rules no tool knows: files under 400 lines, functions under 80, a package
// comment in doc.go for every package, no catch-all package names.
package lint
