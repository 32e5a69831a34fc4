import { expect, test } from 'vitest'
import { SampledVersions, WeightVersions } from './weight-versions.ts'

function versions(...named: readonly string[]): WeightVersions {
  const known = new WeightVersions()
  for (const version of named) known.note(version)
  return known
}

test('integers are compared as numbers, in whatever order they were named', () => {
  const known = versions('3', '10', '9')
  expect(known.newest).toBe('10')
  expect(['10', '9', '3'].map((version) => known.behind(version))).toEqual([0, 1, 7])
  expect(known.behind('4'), 'a version that no backend has named here').toBe(6)
})

test('other names are counted in the order in which they appeared', () => {
  const known = versions('main', 'a1b2', 'c3d4')
  expect(['c3d4', 'a1b2', 'main'].map((version) => known.behind(version))).toEqual([0, 1, 2])
  expect(known.behind('of an earlier launch')).toBe(3)
})

test('the oldest names are forgotten, and count as older than all others', () => {
  const known = versions(...Array.from({ length: 300 }, (_, index) => `v${index}`))
  expect(known.all).toHaveLength(256)
  expect([known.behind('v298'), known.behind('v0')]).toEqual([1, 256])
})

test('a rollout is as far behind as the oldest version that sampled it', () => {
  const [policy, other] = [versions('1', '5'), versions('7')]
  const sampled = new SampledVersions()
  expect(sampled.furthestBehind()).toBeUndefined()
  const reply = { ids: Int32Array.of(1, 2), logprobs: Float32Array.of(-1, -1) }
  sampled.noteAll(other, { ...reply, version: '7' })
  sampled.noteAll(policy, {
    ...reply,
    version: '4',
    versionSpans: [
      { from: 0, version: '4' },
      { from: 1, version: '5' },
    ],
  })
  expect(sampled.furthestBehind()).toEqual({ version: '4', newest: '5', behind: 1 })
  policy.note('8')
  expect(sampled.furthestBehind()).toEqual({ version: '4', newest: '8', behind: 4 })
})
