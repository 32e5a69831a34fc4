import { execFileSync } from 'node:child_process'
import { expect, test } from 'vitest'

const mebibyte = 1024 * 1024
const program = `
  const { heapShare } = await import(${JSON.stringify(import.meta.resolve('./gc.ts'))})
  console.log(heapShare(${256 * mebibyte}))
`

function shareWith(heapMb: number): number {
  const args = ['--no-warnings', `--max-old-space-size=${heapMb}`, '--input-type=module', '--eval', program]
  return Number(execFileSync(process.execPath, args, { encoding: 'utf8' }))
}

test('a large heap gets the full limit', () => {
  expect(shareWith(4096)).toBe(256 * mebibyte)
})

test('a small heap gets a proportionally smaller limit', () => {
  const [small, half] = [shareWith(256), shareWith(512)]
  expect(small).toBeGreaterThan(16 * mebibyte)
  expect(small).toBeLessThan(64 * mebibyte)
  expect(half / small).toBeGreaterThan(1.5)
  expect(half / small).toBeLessThan(2.1)
})
