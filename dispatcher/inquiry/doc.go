// Package inquiry asks an api what became of a call whose outcome is unknown, and ends the call's letter as the answer
// says.
//
//	inquirer.go  what the answer means for a letter
//	inquiry.go   the request, and its slot
package inquiry
