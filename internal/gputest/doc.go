// Package gputest decides whether a test that needs a GPU or a CUDA library runs, skips or fails.
//
// A test skips with the reason and the paths that were tried. WEFT_REQUIRE_GPU=1 turns every such skip into a failure, so
// that a GPU machine cannot pass by skipping. Where WEFT_WHEELS names folders of libraries, a library that is not in them
// is a failure too. The emulated GPU of internal/emulator counts as one, but for tests that call NeedHardware.
package gputest
