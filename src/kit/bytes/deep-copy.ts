type Copy = unknown[] | Record<string, unknown> | Map<unknown, unknown> | Set<unknown> | Date

type Copies = Map<object, Copy>

/**
 * A copy that can be changed without anybody else seeing it: plain objects, arrays, maps, sets and dates at any depth.
 * Objects of other classes are shared, because only their class knows how to copy them.
 */
export function deepCopy<Value>(value: Value): Value
export function deepCopy(value: unknown): unknown {
  if (typeof value !== 'object' || value === null) return value
  const copies: Copies = new Map()
  const copy = copyOf(value, copies)
  // The loop also visits the copies that are added meanwhile, so that depth costs no stack.
  for (const each of copies.values()) ownMembers(each, copies)
  return copy
}

function copyOf(value: object, copies: Copies): object {
  const known = copies.get(value)
  if (known) return known
  const copy = shallowCopy(value)
  if (!copy) return value
  copies.set(value, copy)
  return copy
}

function shallowCopy(value: object): Copy | undefined {
  if (Array.isArray(value)) return value.slice()
  const prototype: unknown = Object.getPrototypeOf(value)
  if (prototype === Object.prototype) return { ...value }
  if (prototype === null) return { __proto__: null, ...value }
  if (prototype === Map.prototype && value instanceof Map) return new Map<unknown, unknown>(value)
  if (prototype === Set.prototype && value instanceof Set) return new Set<unknown>(value)
  if (prototype === Date.prototype && value instanceof Date) return new Date(value)
  return undefined
}

function ownMembers(copy: Copy, copies: Copies): void {
  if (Array.isArray(copy)) {
    for (let index = 0; index < copy.length; index += 1) {
      const item = copy[index]
      if (isObject(item)) copy[index] = copyOf(item, copies)
    }
  } else if (copy instanceof Map) {
    const entries = [...copy]
    copy.clear()
    for (const [key, value] of entries) {
      copy.set(isObject(key) ? copyOf(key, copies) : key, isObject(value) ? copyOf(value, copies) : value)
    }
  } else if (copy instanceof Set) {
    const values = [...copy]
    copy.clear()
    for (const value of values) copy.add(isObject(value) ? copyOf(value, copies) : value)
  } else if (!(copy instanceof Date)) {
    for (const key of Object.keys(copy)) {
      const value = copy[key]
      if (isObject(value)) copy[key] = copyOf(value, copies)
    }
  }
}

function isObject(value: unknown): value is object {
  return typeof value === 'object' && value !== null
}

/** An object while it is put together: optional fields are added afterwards. */
export type Draft<Whole> = { -readonly [Key in keyof Whole]: Whole[Key] }
