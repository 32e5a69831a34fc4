type Side = 'both' | 'start' | 'end'

/** What `str.strip()` of Python removes. JavaScript's `trim()` keeps some of it, and removes U+FEFF. */
const pythonSpaces = '\t\n\v\f\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2028\u2029\u202f\u205f\u3000'.concat(
  ...Array.from({ length: 11 }, (_, index) => String.fromCodePoint(0x2000 + index)),
)

const methods: Readonly<Record<string, Side>> = { strip: 'both', lstrip: 'start', rstrip: 'end' }

/** Functions that a rewritten template calls. */
export const pythonStrings = {
  python_trim: (value: unknown, characters?: unknown) => stripped(value ?? '', characters, 'both'),
  ...Object.fromEntries(
    Object.entries(methods).map(([name, side]) => [
      `python_${name}`,
      (value: unknown, characters?: unknown) => stripped(value, characters, side),
    ]),
  ),
}

/**
 * Makes a parsed template call our `strip`, `lstrip`, `rstrip` and `trim` in place of the library's, which ignore the characters
 * they are given: `content.lstrip('\n')` must keep spaces. The program is changed in place.
 */
export function usePythonStrings(program: unknown): void {
  if (Array.isArray(program)) for (const each of program) usePythonStrings(each)
  else if (program instanceof Map) usePythonStrings([...program].flat())
  else if (isNode(program)) {
    rewrite(program)
    usePythonStrings(Object.values(program))
  }
}

type Node = Record<string, unknown>

function isNode(value: unknown): value is Node {
  return typeof value === 'object' && value !== null
}

function rewrite(node: Node): void {
  const { type, callee, args, operand, filter } = node
  if (type === 'CallExpression' && isNode(callee) && callee['type'] === 'MemberExpression' && Array.isArray(args)) {
    const name = nameOf(callee['property'])
    if (callee['computed'] === true || name === undefined || !Object.hasOwn(methods, name)) return
    Object.assign(node, callOf(`python_${name}`, [callee['object'], ...args]))
  } else if (type === 'FilterExpression' && isNode(filter)) {
    const given: unknown = filter['args'] ?? []
    const name = nameOf(filter['type'] === 'CallExpression' ? filter['callee'] : filter)
    if (name === 'trim' && Array.isArray(given)) Object.assign(node, callOf('python_trim', [operand, ...given]))
  }
}

function nameOf(identifier: unknown): string | undefined {
  if (!isNode(identifier) || identifier['type'] !== 'Identifier') return undefined
  const { value } = identifier
  return typeof value === 'string' ? value : undefined
}

function callOf(name: string, args: readonly unknown[]): Node {
  return { type: 'CallExpression', callee: { type: 'Identifier', value: name }, args }
}

function stripped(value: unknown, characters: unknown, side: Side): string {
  if (typeof value !== 'string') throw new Error(`only a text can be stripped, not ${JSON.stringify(value)}`)
  const removed = new Set(typeof characters === 'string' ? characters : pythonSpaces)
  let start = 0
  let end = value.length
  if (side !== 'end') while (start < end && removed.has(pointAt(value, start))) start += pointAt(value, start).length
  if (side !== 'start')
    while (end > start && removed.has(pointBefore(value, end))) end -= pointBefore(value, end).length
  return value.slice(start, end)
}

function pointAt(text: string, index: number): string {
  const [point = ''] = text.slice(index, index + 2)
  return point
}

function pointBefore(text: string, index: number): string {
  return Array.from(text.slice(Math.max(0, index - 2), index)).at(-1) ?? ''
}
