// Package patience gives a test of deadlines more than one try. It is for tests alone.
//
// Such a test lets one rank be late and wants it named after a wait that is short, so that the suite stays quick. On a machine
// that pauses for longer than the wait, ranks that meant to be in time are late too, and the test would blame the driver. So a
// try that fails is repeated with a longer wait:
//
//	try 1   wait           try 2   4 wait           try 3   16 wait, and what fails here fails the test
//
// A driver that names the wrong rank does so in every try.
package patience
