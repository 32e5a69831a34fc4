import { describe, expect, it } from 'vitest'
import { studentT95 } from './student-t.ts'

// From printed tables of Student's t, two-sided 95%.
const known: readonly (readonly [number, number])[] = [
  [1, 12.7062],
  [2, 4.30265],
  [3, 3.18245],
  [4, 2.77645],
  [5, 2.57058],
  [9, 2.26216],
  [29, 2.04523],
  [99, 1.98422],
  [999, 1.96234],
]

describe('studentT95', () => {
  it.each(known)('with %i degrees of freedom is %f', (degrees, expected) => {
    expect(Math.abs(studentT95(degrees) / expected - 1)).toBeLessThan(0.0015)
    if (degrees >= 6 || degrees <= 2) expect(Math.abs(studentT95(degrees) / expected - 1)).toBeLessThan(1e-4)
  })

  it('falls towards the normal point and is not defined below one degree', () => {
    for (let degrees = 1; degrees < 300; degrees += 1) {
      expect(studentT95(degrees + 1)).toBeLessThan(studentT95(degrees))
    }
    expect(studentT95(1e9)).toBeCloseTo(1.95996, 5)
    expect(studentT95(0)).toBeNaN()
  })
})
