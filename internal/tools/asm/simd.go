package main

func generateSIMD() {}
