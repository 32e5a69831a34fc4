import { fileURLToPath } from 'node:url'

/** The tokenizer and the chat template of the simulator. */
export const simulatorFolder = fileURLToPath(new URL('../../../assets/simulator', import.meta.url))
