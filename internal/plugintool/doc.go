// Package plugintool is what the command "usher plugin" does: it makes a plugin
// from a template, shows what an executable offers, and checks that it keeps
// the contract, whatever language it is written in.
package plugintool
