"""The attentional LSTM of the paper: network, step model and the folders that training writes."""
