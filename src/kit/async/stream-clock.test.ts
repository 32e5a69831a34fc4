import { expect, test } from 'vitest'
import { FakeClock } from '../../../test/support/inference/fake-clock.ts'
import { StreamClock, type ClockLimit } from './waiting.ts'

function open() {
  const ended: ClockLimit[] = []
  const limits = { requestTimeoutMs: 1000, idleTimeoutMs: 100 }
  return { clock: new StreamClock(limits, (limit) => ended.push(limit)), ended }
}

test('the idle time and the total time each have a limit', async () => {
  using time = new FakeClock()
  const { clock, ended } = open()
  clock.start()
  await time.pass(500)
  for (let piece = 0; piece < 3; piece += 1) {
    clock.onPiece()
    await time.pass(90)
  }
  expect(ended).toEqual([])
  await time.pass(20)
  expect(ended).toEqual(['idle'])
  await time.pass(300)
  expect(ended).toEqual(['idle', 'deadline'])
})

test('a held clock stops both limits, and the deadline keeps its remaining time', async () => {
  using time = new FakeClock()
  const { clock, ended } = open()
  clock.start()
  clock.onPiece()
  await time.pass(50)
  for (let round = 0; round < 5; round += 1) {
    clock.hold()
    await time.pass(900)
    clock.goOn()
    await time.pass(90)
  }
  expect(ended).toEqual([])
  for (let piece = 0; piece < 5; piece += 1) {
    clock.onPiece()
    await time.pass(90)
  }
  expect(ended).toEqual([])
  clock.onPiece()
  await time.pass(60)
  expect(ended).toEqual(['deadline'])
})

test('a hold has a limit as well, and stopping leaves no timer', async () => {
  using time = new FakeClock()
  const { clock, ended } = open()
  clock.start()
  clock.hold()
  await time.pass(999)
  expect(ended).toEqual([])
  await time.pass(1)
  expect(ended).toEqual(['stall'])
  clock.goOn()
  clock.stop()
  expect(time.timers).toBe(0)
})
