import { parsePython, pythonNumber } from '../../../src/serve/compat/fastapi/python-numbers.ts'

/** Python's `**` asks the C library, whose last digit is another one on some machines; these come of it. */
const inexactNames = /\/(std_dev_across_runs|std_err_across_runs|avg_sample_std_dev)$/
const inexactShare = 2 ** -51

/** Where two replies of `/aggregate_metrics` differ: in a key, the order of keys, an integer for a float, a digit. */
export function aggregateDifference(expected: string, actual: string): string | undefined {
  return difference(parsePython(Buffer.from(expected)), parsePython(Buffer.from(actual)), '')
}

function difference(expected: unknown, actual: unknown, path: string): string | undefined {
  const [wanted, found] = [pythonNumber(expected), pythonNumber(actual)]
  const differ = `${path}: ${shown(wanted ?? expected)}, not ${shown(found ?? actual)}`
  if (wanted !== undefined || found !== undefined) {
    if (typeof wanted === typeof found && Object.is(wanted, found)) return undefined
    if (typeof wanted !== 'number' || typeof found !== 'number' || !inexactNames.test(path)) return differ
    return Math.abs(wanted - found) <= Math.abs(wanted) * inexactShare ? undefined : differ
  }
  if (!isObject(expected) || !isObject(actual)) return expected === actual ? undefined : differ
  const names = Object.keys(expected)
  const own = Object.keys(actual)
  if (names.join() !== own.join()) return `${path} has the keys ${names.join()}, not ${own.join()}`
  for (const name of names) {
    const inner = difference(expected[name], actual[name], `${path}/${name}`)
    if (inner !== undefined) return inner
  }
  return undefined
}

function isObject(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === 'object' && value !== null
}

function shown(value: unknown): string {
  if (typeof value === 'bigint') return `integer ${value}`
  return typeof value === 'number' ? `float ${value}` : JSON.stringify(value)
}
