// SPDX-License-Identifier: Apache-2.0
// Compiled once for each public header, which must stand on its own and bear being included twice.
#include HEADER
#include HEADER

int main() {}
