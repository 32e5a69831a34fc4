import type { JsonObject } from '../schema/index.ts'

interface WrittenCall {
  readonly name: string
  /** The text that the model writes, meant to be JSON. */
  readonly arguments: string
}

type Slip = (call: { name: string; arguments: JsonObject }) => WrittenCall

const misspeltName: Slip = ({ name, arguments: args }) => ({
  name: name.length > 2 ? `${name.slice(0, -2)}${name.at(-1)}${name.at(-2)}_` : `${name}_`,
  arguments: JSON.stringify(args),
})

const missingField: Slip = ({ name, arguments: args }) => ({
  name,
  arguments: JSON.stringify(Object.fromEntries(Object.entries(args).slice(1))),
})

const wrongType: Slip = ({ name, arguments: args }) => ({
  name,
  arguments: JSON.stringify(
    Object.fromEntries(Object.entries(args).map(([key, value], index) => [key, index === 0 ? { value } : value])),
  ),
})

const cutShort: Slip = ({ name, arguments: args }) => ({ name, arguments: JSON.stringify(args).slice(0, -1) })

const notJson: Slip = ({ name, arguments: args }) => ({
  name,
  arguments: `{${Object.entries(args)
    .map(([key, value]) => `'${key}': '${typeof value === 'string' ? value : JSON.stringify(value)}'`)
    .join(', ')}}`,
})

const fenced: Slip = ({ name, arguments: args }) => ({
  name,
  arguments: `\`\`\`json\n${JSON.stringify(args)}\n\`\`\``,
})

/** Mistakes that models make in tool calls; each leaves a call that a strict reader must refuse. */
const slips: readonly Slip[] = [misspeltName, missingField, wrongType, cutShort, notJson, fenced]

/** The call with one slip in it, chosen by `luck` in [0, 1). */
export function sloppyCall(call: { name: string; arguments: JsonObject }, luck: number): WrittenCall {
  const hasArguments = Object.keys(call.arguments).length > 0
  // Without arguments there is no field to get wrong, and `{}` in any form might pass.
  const slip = hasArguments ? slips[Math.floor(luck * slips.length)] : misspeltName
  return (slip ?? misspeltName)(call)
}
