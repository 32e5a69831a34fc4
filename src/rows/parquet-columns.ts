import type { SchemaElement } from 'hyparquet-writer'
import { bytesOf, dtypeOf } from '../kit/index.ts'
import { type Message, partsText, type RoutedExperts } from '../schema/index.ts'

type Repetition = SchemaElement['repetition_type']

export interface ColumnType {
  /** The schema of the column: its own element, then those within it. */
  readonly elements: (name: string, repetition: Repetition) => SchemaElement[]
  /** What the library takes for a value of a row that is not null. */
  readonly valueOf: (value: unknown) => unknown
}

/** A column whose values are lists of numbers, in the memory of a typed array. */
export interface NumbersColumn extends Pick<ColumnType, 'elements'> {
  readonly physical: 'INT32' | 'FLOAT'
}

/** The columns of a file, in order. All of them can be null. */
export interface RowColumns {
  readonly fields: Readonly<Record<string, ColumnType>>
  readonly numbers: Readonly<Record<string, NumbersColumn>>
}

export function valueIn(row: Readonly<Record<string, unknown>>, name: string, { valueOf }: ColumnType): unknown {
  const value = row[name]
  return value === null || value === undefined ? null : valueOf(value)
}

/** The element of a struct or of the file, and those of its fields. */
export function structElements(
  name: string,
  fields: Readonly<Record<string, Pick<ColumnType, 'elements'>>>,
  repetition_type?: Repetition,
): SchemaElement[] {
  const entries = Object.entries(fields)
  return [
    { name, ...(repetition_type && { repetition_type }), num_children: entries.length },
    ...entries.flatMap(([field, { elements }]) => elements(field, 'OPTIONAL')),
  ]
}

function leaf(type: Omit<SchemaElement, 'name'>, valueOf: ColumnType['valueOf'] = (value) => value): ColumnType {
  return {
    elements: (name, repetition_type) => [{ name, ...(repetition_type && { repetition_type }), ...type }],
    valueOf,
  }
}

function struct(fields: RowColumns['fields']): ColumnType {
  const entries = Object.entries(fields)
  return {
    elements: (name, repetition) => structElements(name, fields, repetition),
    valueOf: (value) => {
      const given = value as Readonly<Record<string, unknown>>
      return Object.fromEntries(entries.map(([field, type]) => [field, valueIn(given, field, type)]))
    },
  }
}

function list(of: ColumnType): ColumnType {
  const isList = { num_children: 1, converted_type: 'LIST', logical_type: { type: 'LIST' } } as const
  return {
    elements: (name, repetition_type) => [
      { name, ...(repetition_type && { repetition_type }), ...isList },
      { name: 'list', repetition_type: 'REPEATED', num_children: 1 },
      ...of.elements('element', 'REQUIRED'),
    ],
    valueOf: (values) => (values as readonly unknown[]).map(of.valueOf),
  }
}

const isText = { type: 'BYTE_ARRAY', converted_type: 'UTF8', logical_type: { type: 'STRING' } } as const
const isTime = {
  converted_type: 'TIMESTAMP_MILLIS',
  logical_type: { type: 'TIMESTAMP', isAdjustedToUTC: true, unit: 'MILLIS' },
} as const

const text = leaf(isText)
// Text for the readers, too: not all of them know the type JSON.
const json = leaf(isText, (value) => JSON.stringify(value))
const bool = leaf({ type: 'BOOLEAN' })
const int32 = leaf({ type: 'INT32' })
const double = leaf({ type: 'DOUBLE' })
const bytes = leaf({ type: 'BYTE_ARRAY' })
const time = leaf({ type: 'INT64', ...isTime }, (ms) => BigInt(ms as number))

const ids: NumbersColumn = { ...list(int32), physical: 'INT32' }
const mask: NumbersColumn = { ...list(leaf({ type: 'INT32', converted_type: 'UINT_8' })), physical: 'INT32' }
const logprobs: NumbersColumn = { ...list(leaf({ type: 'FLOAT' })), physical: 'FLOAT' }

const messageFields = {
  role: text,
  content: text,
  reasoning_content: text,
  tool_calls: list(struct({ id: text, type: text, function: struct({ name: text, arguments: text }) })),
  tool_call_id: text,
  name: text,
}
const messageStruct = struct({ ...messageFields, more: json })

/** A message as trainers read conversations. What has no field is in `more`, also content that is not only text. */
const message: ColumnType = {
  ...messageStruct,
  valueOf: (value) => {
    const { content, ...others } = value as Message
    const fields: Record<string, unknown> = { content: content === null ? null : partsText(content) }
    const more: Record<string, unknown> = Array.isArray(content) ? { content } : {}
    for (const [name, part] of Object.entries(others)) (name in messageFields ? fields : more)[name] = part
    return messageStruct.valueOf({ ...fields, more: Object.keys(more).length > 0 ? more : null })
  },
}

const expertsStruct = struct({ shape: list(int32), dtype: text, data: bytes })
const routedExperts: ColumnType = {
  ...expertsStruct,
  valueOf: (value) => {
    const { shape, experts } = value as RoutedExperts
    return expertsStruct.valueOf({ shape, dtype: dtypeOf(experts), data: bytesOf(experts) })
  },
}

const rowFields = {
  kind: text,
  session: text,
  parent: text,
  group: text,
  tenant: text,
  task: text,
  sample: int32,
  sealed: bool,
  outcome: text,
  truncated: bool,
  reward: double,
  rewards: json,
  advantage: double,
  lost: int32,
  error: struct({ code: text, message: text }),
  main: bool,
  tree: struct({ root: int32, system: text, model: text, tools: list(text), requests: int32 }),
  discarded: text,
  versions: list(struct({ version: text, count: int32 })),
}

export const mergedColumns: RowColumns = {
  fields: {
    ...rowFields,
    samples: list(
      struct({
        interaction: text,
        node: int32,
        start: int32,
        count: int32,
        trains: bool,
        sampling: json,
        reward: double,
        return: double,
      }),
    ),
    splitAt: struct({ interaction: text, node: int32, token: int32, within: text }),
  },
  numbers: { ids, mask, logprobs },
}

export const interactionColumns: RowColumns = {
  fields: {
    ...rowFields,
    return: double,
    trains: bool,
    interaction: text,
    node: int32,
    parentInteraction: text,
    parentNode: int32,
    at: time,
    model: text,
    backend: text,
    api: text,
    dropped: list(text),
    finishReason: text,
    sampling: json,
    usage: json,
    cost: double,
    messages: list(message),
    routedExperts,
  },
  numbers: { promptIds: ids, ids, logprobs },
}
