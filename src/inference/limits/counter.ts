/**
 * A number that several workers count together. Each worker has a cell that nobody else writes, and reading adds the cells
 * up. So counting needs no atomics, and the count of a worker that died can be taken back exactly.
 */
export class Counter {
  readonly #cells: Int32Array
  readonly #place: number

  constructor(cells: Int32Array, place: number) {
    this.#cells = cells
    this.#place = place
  }

  get value(): number {
    return sumOf(this.#cells)
  }

  add(amount: number): void {
    this.#cells[this.#place]! += amount
  }
}

export function sumOf(cells: Int32Array): number {
  let sum = 0
  for (let index = 0; index < cells.length; index += 1) sum += cells[index] as number
  return sum
}
