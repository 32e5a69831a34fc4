import { toolFormatOf, type ToolFormatName } from '../tools/index.ts'
import type { CallStyle } from './call-style.ts'
import { nativeCalls } from './native-calls.ts'
import { textCalls } from './text-calls.ts'

/** As a run's settings say; native if they say nothing. */
export function callStyleOf({ toolFormat }: { readonly toolFormat?: ToolFormatName }): CallStyle {
  return toolFormat ? textCalls(toolFormatOf(toolFormat)) : nativeCalls
}
